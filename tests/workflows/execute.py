"""Runs every `run:` of the workflows and of the action, for the events that matter: `execute.py CARGO-VRAM SHELLCHECK`.

Then checks that the real cargo-vram accepts the arguments of all calls.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from runner import ROOT, STOOD_IN, SYSTEM, Failed, Run, check_out, load, stand_in
from snippets import snippets

VRAM, SHELLCHECK = (str(Path(one).resolve()) for one in sys.argv[1:3])
ACTION = ".github/actions/vram/action.yml"
WORKFLOWS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / ".github/workflows").glob("*.yml"))

# Commands and options with a value that do not exist yet, so the real program is not called with them. Remove one from
# here when it exists.
PENDING = []
PENDING_OPTIONS = []

GPU = {"VRAM_GPU_RUNNER": "gpu"}
executed, asked, tests = {}, set(), []


def test(function):
    tests.append(function)
    return function


def run(path, github, folder, **more):
    """Runs all jobs for an event, and remembers the scripts and calls."""
    one = Run(tempfile.mkdtemp(dir=folder), f".github/workflows/{path}", github, **more)
    one.all()
    for file, script, code in one.ran:
        executed.setdefault((file, script), []).append(code)
    asked.update(tuple(arguments) for arguments in one.calls("cargo-vram"))
    return one


def expect(what, message):
    if not what:
        raise Failed(message)


def pull_request(fork=False, labels=(), base="main", labeled=None, unlabeled=None, action="synchronize"):
    event = {"pull_request": {"head": {"repo": {"fork": fork}}, "labels": [{"name": one} for one in labels]}}
    event["pull_request"]["base"] = {"sha": "0123abc"}
    event["action"] = "labeled" if labeled else "unlabeled" if unlabeled else action
    event["label"] = {"name": labeled or unlabeled}
    return {"event_name": "pull_request", "ref": "refs/pull/7/merge", "base_ref": base, "event": event}


PUSH = {"event_name": "push", "event": {}}


def after(event="pull_request", name="GPU memory", repository="owner/project", conclusion="success"):
    """The event after another workflow has ended."""
    run = {
        "event": event,
        "name": name,
        "id": 5,
        "workflow_id": 3,
        "conclusion": conclusion,
        "head_repository": {"full_name": repository},
        "head_branch": "$(touch injected)",
    }
    event = {"workflow_run": run, "repository": {"default_branch": "main"}}
    return {"event_name": "workflow_run", "event": event}


def artifact(folder, name, *files):
    there = Path(tempfile.mkdtemp(dir=folder)) / name
    there.mkdir()
    for file in files:
        (there / file).write_text("{}\n")
    return {name: there}


def action(folder, inputs, **environment):
    """Runs the action alone, as a step of a workflow."""
    return used(folder, PUSH, inputs, environment)


def used(folder, event, inputs, environment=None):
    """Runs the action for an event."""
    one = Run(tempfile.mkdtemp(dir=folder), ".github/workflows/vram.yml", event, environment=environment)
    steps = one.workflow["jobs"]["estimate"]["steps"]
    steps[-1]["with"] = inputs
    one.all()
    for file, script, code in one.ran:
        executed.setdefault((file, script), []).append(code)
    return one


@test
def scripts_take_nothing_but_variables(folder):
    for path in [*WORKFLOWS, ACTION]:
        workflow = load(path)
        jobs = workflow.get("jobs", {"action": workflow.get("runs")}).values()
        for script in (step["run"] for job in jobs for step in job["steps"] if "run" in step):
            expect("${{" not in script, f"{path}: an expression in a script:\n{script}")
            lint = subprocess.run([SHELLCHECK, "--shell=bash", "--enable=check-set-e-suppressed", "-"],
                                  input=script, capture_output=True, text=True)
            expect(lint.returncode == 0, f"{path}:\n{script}\n{lint.stdout}")


@test
def a_pull_request_is_estimated_without_a_token(folder):
    one = run("vram.yml", pull_request(fork=True), folder)
    expect(one.results == {"estimate": "success"}, one.results)
    expect("vram-report" in one.own, "no report was uploaded")
    expect("markdown of" in one.summary and "github of" in one.log, "nothing was shown")
    check = next(call for call in one.calls("cargo-vram") if call[1] == "check")
    expect(check[2:4] == ["--estimate", "--locked"] and "" not in check, check)


def bases(one):
    """The options of its checks that select a base."""
    checks = [call for call in one.calls("cargo-vram") if call[1] == "check"]
    wanted = ("--base", "--rebuild", "--why")
    return [argument for check in checks for argument in check if argument.startswith(wanted)]


@test
def a_pull_request_is_compared_with_its_base_and_a_push_with_none(folder):
    for event, told in (
        (pull_request(), ["--base=origin/main"]),
        (pull_request(fork=True, base="release/1"), ["--base=origin/release/1"]),
        (pull_request(base="$(touch injected) *"), ["--base=origin/$(touch injected) *"]),
        (PUSH, []),
    ):
        one = run("vram.yml", event, folder)
        expect(one.results == {"estimate": "success"} and bases(one) == told, (event, bases(one), one.log))


@test
def a_checkout_of_another_user_has_a_base(folder):
    one = run("vram.yml", pull_request(), folder, environment={"STAND_IN_CONTAINER": "1"})
    expect(one.results == {"estimate": "success"} and bases(one) == ["--base=origin/main"], one.log)


@test
def a_base_is_an_input_and_left_out_where_it_cannot_be(folder):
    for inputs, told in (
        ({"base": "v1.0"}, ["--base=v1.0"]),
        ({"base": ""}, []),
        ({"args": "--base v1.0"}, ["--base"]),
        ({"args": "-m a --archive-file models.tar.zst"}, []),
        ({"command": "estimate"}, []),
        ({"base": "v1.0", "rebuild": "true"}, ["--base=v1.0", "--rebuild", "--why"]),
        ({"base": "", "rebuild": "true"}, []),
        ({"args": "--base v1.0 --rebuild"}, ["--base", "--rebuild", "--why"]),
        ({"args": "--base v1.0 --rebuild --why"}, ["--base", "--rebuild", "--why"]),
        ({"args": "--base v1.0", "rebuild": "true"}, ["--base", "--rebuild", "--why"]),
        ({"args": "-m a --archive-file models.tar.zst", "rebuild": "true"}, []),
        ({"command": "measure", "base": "v1.0"}, []),
    ):
        one = used(folder, pull_request(), inputs)
        asked.update(tuple(arguments) for arguments in one.calls("cargo-vram"))
        expect(one.results == {"estimate": "success"} and bases(one) == told, (inputs, bases(one), one.log))


@test
def a_base_without_its_history_is_no_check(folder):
    """Without this, the tests above would pass with every `fetch-depth`."""
    one = Run(tempfile.mkdtemp(dir=folder), ".github/workflows/vram.yml", pull_request())
    one.workflow["jobs"]["estimate"]["steps"][0]["with"].pop("fetch-depth", None)
    expect(one.all() == {"estimate": "failure"} and "no base" in one.log, one.log)


@test
def what_is_run_from_an_archive_has_no_base_of_its_own(folder):
    for path in ("vram-measure.yml", "vram-matrix.yml"):
        one = run(path, pull_request(), folder, variables=GPU)
        expect(set(one.results.values()) == {"success"} and bases(one) == [], (path, one.results, bases(one)))
    one = run("vram-measure.yml", pull_request(), folder, variables=GPU)
    [archive] = [call for call in one.calls("cargo-vram") if call[1] == "archive"]
    expect("--base=origin/main" in archive, archive)
    one = run("vram-measure.yml", PUSH, folder, variables=GPU)
    [archive] = [call for call in one.calls("cargo-vram") if call[1] == "archive"]
    expect(not any(argument.startswith("--base") for argument in archive), archive)


@test
def a_pull_request_loosens_its_limits_only_with_a_label(folder):
    approved = "vram-limits-approved"
    for path, variables in (("vram.yml", {}), ("vram-measure.yml", GPU)):
        for event, denies in (
            (pull_request(), True),
            (pull_request(labels=[f"{approved}-not"], labeled=f"{approved}-not"), True),
            (pull_request(labels=[approved], labeled=approved), False),
            # Somebody set the label, and then the pull request was pushed to or opened again.
            (pull_request(labels=[approved]), True),
            (pull_request(labels=[approved], action="reopened"), True),
            (pull_request(labels=[approved, "bug"], labeled="bug"), True),
            (pull_request(unlabeled=approved), True),
            (PUSH, False),
        ):
            one = run(path, event, folder, variables=variables)
            [check] = [call for call in one.calls("cargo-vram") if call[1] == "check"]
            expect(("--deny-edits" in check) == denies and "" not in check, (path, event, check))


@test
def what_fails_the_check_fails_the_job_and_keeps_its_report(folder):
    for code, word in (("100", "over budget"), ("101", "could not complete"), ("2", "ended with 2")):
        one = run("vram.yml", pull_request(), folder, environment={"STAND_IN_CODE": code})
        expect(one.results == {"estimate": "failure"}, (code, one.results))
        expect(word in one.log, one.log)
        expect(("vram-report" in one.own) == (code != "2"), f"{code}: {one.own}")


@test
def the_first_build_is_kept_however_the_check_ends(folder):
    one = run("vram.yml", PUSH, folder, environment={"STAND_IN_CODE": "100"})
    keys = re.findall(r"\[cache/(\w+) ([\w.-]+)\]", one.log)
    expect([kind for kind, _ in keys] == ["restore", "save", "restore", "save"], keys)
    expect(keys[0][1] == keys[1][1] and keys[2][1] == keys[3][1] and keys[0][1] != keys[2][1], keys)


@test
def a_release_is_fetched_and_its_checksum_verified(folder):
    one = action(folder, {"version": "0.1.0", "args": "--estimate"})
    expect(one.results == {"estimate": "success"}, one.log)
    expect(not any(call[0] == "install" for call in one.calls("cargo")), "the tool was built despite the release")
    [archive, checksum] = [call[-1] for call in one.calls("curl")]
    expect(archive == "https://github.invalid/owner/project/releases/download/v0.1.0/"
           "cargo-vram-x86_64-unknown-linux-gnu.tar.gz", archive)
    expect(checksum == archive + ".sha256", checksum)


@test
def what_the_release_workflow_packs_is_what_the_action_and_binstall_fetch(folder):
    one = run("release.yml", {"event_name": "push", "ref": "refs/tags/v0.1.0", "event": {}}, folder)
    expect(set(one.results.values()) == {"success"}, one.log)
    names = {file.name for kept in one.own.values() for file in kept.iterdir()}
    targets = {"x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"}
    archives = {f"cargo-vram-{target}.tar.gz" for target in targets}
    expect(names == archives | {f"{one}.sha256" for one in archives}, names)
    [publish] = one.calls("gh")
    expect(publish[:3] == ["release", "create", "v0.1.0"] and len(publish) == 11, publish)
    url = re.search(r'pkg-url = "(.*)"', (ROOT / "Cargo.toml").read_text())[1]
    for target in targets:
        expect(url.replace("{ target }", target).endswith(f"/download/v{{ version }}/cargo-vram-{target}.tar.gz"), url)


@test
def a_tag_that_is_not_the_version_is_no_release(folder):
    one = run("release.yml", {"event_name": "push", "ref": "refs/tags/v9.9.9", "event": {}}, folder)
    expect(one.results == {"build": "failure", "publish": "skipped"}, one.results)
    expect(not one.calls("gh"), "a release was published")


@test
def a_damaged_or_another_archive_is_refused(folder):
    for inputs, environment in (
        ({"version": "0.1.0"}, {"STAND_IN_DAMAGE": "1"}),
        ({"version": "0.1.0", "sha256": "0" * 64}, {}),
        ({"version": "0.1.0", "sha256": "$(touch injected)"}, {}),
    ):
        one = action(folder, inputs, **environment)
        expect(one.results == {"estimate": "failure"}, one.log)
        expect("The checksum of" in one.log and "does not match" in one.log and not one.calls("cargo-vram"), one.log)


@test
def inputs_are_data(folder):
    for inputs in (
        {"version": "0.1.0/../../other"},
        {"version": "$(touch injected)"},
        {"command": "check; touch injected"},
        {"command": "comment"},
    ):
        one = action(folder, inputs)
        expect(one.results == {"estimate": "failure"}, (inputs, one.log))
    one = action(folder, {"args": "--estimate; touch injected\n-m *\n-m `touch injected` $(touch injected)"})
    [check] = [call for call in one.calls("cargo-vram") if call[1] == "check"]
    given = ["--estimate;", "touch", "injected", "-m", "*", "-m", "`touch", "injected`", "$(touch", "injected)"]
    expect(check[2:12] == given, check)


@test
def a_tool_that_is_there_is_taken(folder):
    one = Run(tempfile.mkdtemp(dir=folder), ".github/workflows/vram.yml", PUSH)
    steps = one.workflow["jobs"]["estimate"]["steps"]
    steps[-1]["with"] = {"binary": "Cargo.toml.d/cargo-vram", "cache": "false"}
    steps.insert(1, {"run": 'mkdir Cargo.toml.d && cp "$RUNNER_TEMP/../bin/cargo-vram" Cargo.toml.d/ && chmod 644 Cargo.toml.d/*'})
    one.all()
    expect(one.results == {"estimate": "success"}, one.log)
    expect(not one.calls("curl") and not any(call[0] == "install" for call in one.calls("cargo")), "a tool was installed")
    expect("[cache/" not in one.log, "a cache was used")


@test
def the_comment_is_posted_by_what_is_on_the_main_branch(folder):
    report = artifact(folder, "vram-report", "report.json")
    one = run("vram-comment.yml", after(), folder, artifacts=report)
    expect(one.results == {"comment": "success"}, one.log)
    [comment] = [call for call in one.calls("cargo-vram") if call[1] == "comment"]
    place = "https://github.invalid/owner/project/actions/runs/5"
    expect(comment[-5:] == ["--on-change-only", "--label", "estimated", "--artifact-url", place], comment)
    expect("[cache/" not in one.log, "a job with write permissions used a cache")
    one = run("vram-comment.yml", after(name="GPU memory, measured"), folder, artifacts=report)
    [comment] = [call for call in one.calls("cargo-vram") if call[1] == "comment"]
    expect("measured" in comment, comment)


@test
def a_push_and_a_run_without_a_report_get_no_comment(folder):
    one = run("vram-comment.yml", after(event="push"), folder)
    expect(one.results == {"comment": "skipped"}, one.results)
    one = run("vram-comment.yml", after(), folder)
    expect(one.results == {"comment": "success"} and not one.ran, one.log)


@test
def a_run_that_failed_without_a_report_takes_back_what_a_comment_says(folder):
    one = run("vram-comment.yml", after(conclusion="failure"), folder)
    expect(one.results == {"comment": "success"}, one.log)
    [comment] = [call for call in one.calls("cargo-vram") if call[1] == "comment"]
    expect(comment[2:] == ["--no-report", "--label", "estimated", "--artifact-url", comment[-1]], comment)


@test
def only_those_who_may_push_are_measured_at_once(folder):
    for event, variables, results in (
        (PUSH, GPU, ["success", "success"]),
        (pull_request(), GPU, ["success", "success"]),
        (pull_request(), {}, ["skipped", "skipped"]),
        (pull_request(fork=True), GPU, ["skipped", "skipped"]),
        (pull_request(fork=True, labels=["measure"]), GPU, ["success", "skipped"]),
        (pull_request(fork=True, labels=["measure"]), {}, ["success", "skipped"]),
        (pull_request(fork=True, labels=["measure"], labeled="measure"), GPU, ["success", "skipped"]),
        (pull_request(fork=True, labels=["measure"], labeled="bug"), GPU, ["success", "skipped"]),
        # GitHub counts a skipped job as passed, so a label must not skip the job.
        (pull_request(labels=["bug"], labeled="bug"), GPU, ["success", "success"]),
        (pull_request(unlabeled="bug"), GPU, ["success", "success"]),
    ):
        one = run("vram-measure.yml", event, folder, variables=variables)
        expect(list(one.results.values()) == results, (event, variables, one.results, one.log))
    one = run("vram-measure.yml", PUSH, folder, variables=GPU)
    [check] = [call for call in one.calls("cargo-vram") if call[1] == "check"]
    expect({"--measure", "--require-baseline", "--deny-warnings"} < set(check), check)
    one = run("vram-measure.yml", PUSH, folder, variables=GPU, environment={"STAND_IN_CODE": "100"})
    expect(one.results["measure"] == "failure" and "vram-report" in one.own, "a failed check uploaded no report")


@test
def a_fork_is_measured_where_somebody_is_asked(folder):
    models = artifact(folder, "vram-models", "models.tar.zst", "cargo-vram")
    fork = after(name="GPU memory, measured", repository="stranger/project")
    one = run("vram-measure-forks.yml", fork, folder, variables=GPU, artifacts=models)
    expect(set(one.results.values()) == {"success"}, (one.results, one.log))
    [comment] = [call for call in one.calls("cargo-vram") if call[1] == "comment"]
    expect(comment[-1] == "https://github.invalid/owner/project/actions/runs/6", comment)
    workflow = load(".github/workflows/vram-measure-forks.yml")
    for name, job in workflow["jobs"].items():
        takes = any("vram-models" in str(step.get("with")) for step in job["steps"])
        expect(not takes or job.get("environment") == "gpu-forks", f"{name} runs a fork's programs without approval")
        expect(not takes or job["permissions"] == {"actions": "read"}, f"{name} has too many permissions")
    for reviewers in ("0", ""):
        one = run("vram-measure-forks.yml", fork, folder, variables=GPU, artifacts=models,
                  environment={"STAND_IN_REVIEWERS": reviewers})
        others = {name: result for name, result in one.results.items() if name != "guarded"}
        expect(one.results["guarded"] == "failure" and set(others.values()) == {"skipped"}, one.results)
    for event in (after(name="GPU memory, measured"), after(event="push", repository="stranger/project")):
        one = run("vram-measure-forks.yml", event, folder, variables=GPU)
        expect(set(one.results.values()) == {"skipped"}, one.results)


@test
def what_can_write_runs_nothing_that_another_job_made(folder):
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            permissions = job.get("permissions", load(path).get("permissions"))
            if "write" not in permissions.values() or path.endswith("release.yml"):
                continue
            for step in job["steps"]:
                action, given = step.get("uses", ""), step.get("with", {})
                expect("cache" not in action, f"{path}: {name} restores a cache")
                expect("actions/vram" not in action or given.get("cache") == "false", f"{path}: {name} uses a cache")
                expect("binary" not in given, f"{path}: {name} runs a binary from elsewhere")
                if "download-artifact" in action:
                    expect(given["name"] == "vram-report", f"{path}: {name} downloads more than the report")


@test
def the_parts_are_joined(folder):
    one = run("vram-matrix.yml", {"event_name": "workflow_dispatch", "event": {}}, folder)
    expect(set(one.results.values()) == {"success"}, (one.results, one.log))
    parts = [call[call.index("--partition") + 1] for call in one.calls("cargo-vram") if "--partition" in call]
    expect(parts == [f"hash:{part}/4" for part in range(1, 5)], parts)
    merge = next(call for call in one.calls("cargo-vram") if call[1] == "merge")
    expect([Path(part).name for part in merge[2:6]] == [f"report-{part}.json" for part in range(1, 5)], merge)
    for code in ("100", "101"):
        one = run("vram-matrix.yml", {"event_name": "workflow_dispatch", "event": {}}, folder,
                  environment={"STAND_IN_CODE": code})
        expect(one.results == {"build": "success", "part": "failure", "merge": "success"}, (code, one.results))
        expect("vram-report" in one.own, "the existing reports were not merged")


@test
def once_a_week_what_drifted_fails(folder):
    event = {"event_name": "schedule", "event": {}}
    expect(set(run("vram-weekly.yml", event, folder).results.values()) == {"skipped"}, "it ran without a GPU")
    one = run("vram-weekly.yml", event, folder, variables=GPU)
    expect(set(one.results.values()) == {"success"}, one.log)
    one = run("vram-weekly.yml", event, folder, variables=GPU, environment={"STAND_IN_CODE": "100"})
    expect(one.results["measure"] == "failure" and "vram-weekly" in one.own, one.results)


@test
def every_test_of_the_project_is_run(folder):
    one = run("ci.yml", PUSH, folder)
    expect(one.results == {"part": "success", "test": "success"}, one.log)
    calls = one.calls("run")
    slices = [call[-1] for call in calls if call[0] == "tests"]
    expect(slices == [f"slice:{number}/{len(slices)}" for number in range(1, len(slices) + 1)] and slices, calls)
    # The part `burn-0_22` is not in this workflow, because Ubuntu 24.04 has no LLVM 22.
    known = re.findall(r"^#   ([\w-]+)  ", (ROOT / "tests/run").read_text(), re.MULTILINE)
    expect({call[0] for call in calls} == set(known) - {"burn-0_22"}, (calls, known))


@test
def the_docs_show_what_runs(folder):
    shown = yaml.safe_load(snippets()[".github/workflows/vram.yml"])
    steps = load(".github/workflows/vram.yml")["jobs"]["estimate"]["steps"]
    [checkout, gate] = shown["jobs"]["estimate"]["steps"]
    expect({name: checkout[name] for name in ("uses", "with")} == steps[0], "docs/github.md has another checkout")
    # docs/github.md has OWNER and COMMIT until `.github/publish` replaces them.
    expect(re.fullmatch(r"[\w./-]+/\.github/actions/vram@(COMMIT|[0-9a-f]{40})", gate["uses"]), gate)
    expect(gate["with"]["args"].startswith("--estimate --locked"), "the arguments of docs/github.md differ from the workflow's")
    expect(steps[-1]["with"]["args"].startswith("--estimate --locked"), "the workflow has other arguments")


def gitlab(folder, **given):
    """Runs the job of docs/gitlab.md; returns the job, its folder and its calls of cargo-vram."""
    home = Path(tempfile.mkdtemp(dir=folder))
    [job] = yaml.safe_load(snippets()[".gitlab-ci.yml"]).values()
    (home / "project").mkdir()
    check_out(home / "project", job["variables"].get("GIT_DEPTH", "20"))
    for program in STOOD_IN:
        stand_in(home / "bin" / program)
    variables = {name: value.replace("$CI_PROJECT_DIR", str(home / "project")) for name, value in job["variables"].items()}
    for lines in (job["before_script"] + job["script"], job["after_script"]):
        result = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(lines)], cwd=home / "project", capture_output=True, text=True,
            env={"PATH": f"{home / 'bin'}:{SYSTEM}", "HOME": str(home), "STAND_IN_RECORD": str(home / "record"),
                 **given, **variables})
        expect(result.returncode == 0, result.stderr)
    record = [json.loads(line) for line in (home / "record").read_text().splitlines()]
    calls = [call["arguments"] for call in record if call["program"] == "cargo-vram"]
    asked.update(map(tuple, calls))
    return job, home / "project", calls


@test
def gitlab_gets_tests_and_code_quality(folder):
    job, project, _ = gitlab(folder)
    reports = job["artifacts"]["reports"]
    expect((project / reports["junit"]).read_text() == "junit of report.json\n", "there is no JUnit report")
    found = json.loads((project / reports["codequality"]).read_text())
    expect([(one["severity"], one["location"]["lines"]["begin"]) for one in found] == [("minor", 4), ("major", 1)], found)
    expect(all(set(one) == {"description", "check_name", "severity", "fingerprint", "location"} for one in found), found)


@test
def gitlab_compares_a_merge_request_with_its_base(folder):
    parted, target = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "0123abc"}, {"CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "456def"}
    for given, told in (
        ({}, []),
        (parted, ["--base=0123abc"]),
        ({**parted, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": ""}, ["--base=0123abc"]),
        ({**parted, **target}, ["--base=456def"]),
    ):
        _, _, calls = gitlab(folder, **given)
        bases = [argument for call in calls for argument in call if argument.startswith("--base")]
        expect(bases == told and not any("" in call for call in calls), (given, calls))


@test
def nothing_was_injected_anywhere(folder):
    found = [str(path) for path in Path(folder).rglob("injected*")]
    expect(not found, found)


@test
def every_script_was_executed_to_a_good_end(folder):
    for path in [*WORKFLOWS, ACTION]:
        workflow = load(path)
        for job in workflow.get("jobs", {"action": workflow.get("runs")}).values():
            for step in job["steps"]:
                if "run" in step:
                    expect(0 in executed.get((path, step["run"]), []), f"{path}: never succeeded:\n{step['run']}")
    print(f"   ran {len(executed)} scripts, {sum(map(len, executed.values()))} times in total")


@test
def the_real_program_takes_what_it_is_called_with(folder):
    """In an empty folder and without Cargo, the program only parses its arguments."""

    def refused(arguments):
        result = subprocess.run([VRAM, *arguments], cwd=tempfile.mkdtemp(dir=folder), capture_output=True, text=True,
                                env={"PATH": "/nonexistent", "GITHUB_TOKEN": "not-a-token"}, timeout=60)
        return result.returncode == 2 and "--help" in result.stderr and result.stderr

    expect(refused(["vram", "check", "--no-such-option"]), "the program accepts an unknown option")
    for pending in PENDING:
        expect(refused(["vram", pending]) and "unrecognized subcommand" in refused(["vram", pending]),
               f"cargo vram {pending} exists now: remove it from PENDING in {__file__}")
    for pending in PENDING_OPTIONS:
        expect("unexpected argument" in (refused(["vram", *pending.split(), "value"]) or ""),
               f"cargo vram {pending} exists now: remove it from PENDING_OPTIONS in {__file__}")

    def known(call):
        """The call without the options that do not exist yet."""
        left_out = {at + step for at, one in enumerate(call) if f"{call[1]} {one}" in PENDING_OPTIONS for step in (0, 1)}
        return tuple(one for at, one in enumerate(call) if at not in left_out)

    calls = sorted({known(call) for call in asked if call[1] not in PENDING})
    for call in calls:
        expect(not refused(call), f"cargo {' '.join(call)}\n{refused(call)}")
    print(f"   checked {len(calls)} calls; skipped: {', '.join(PENDING + PENDING_OPTIONS) or 'none'}")


failed = 0
with tempfile.TemporaryDirectory() as scratch:
    for one in tests:
        try:
            one(scratch)
            print(f"ok   {one.__name__}")
        except Failed as error:
            failed += 1
            print(f"FAIL {one.__name__}\n{error}")
sys.exit(1 if failed else 0)
