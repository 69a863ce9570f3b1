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


def run(path, github, folder, change=None, **more):
    """Runs all jobs for an event, after a change of the workflow, and remembers the scripts and calls."""
    one = Run(tempfile.mkdtemp(dir=folder), f".github/workflows/{path}", github, **more)
    if change:
        change(one.workflow)
    one.all()
    for file, script, code in one.ran:
        executed.setdefault((file, script), []).append(code)
    asked.update(tuple(arguments) for arguments in one.calls("cargo-vram"))
    return one


def expect(what, message):
    if not what:
        raise Failed(message)


# The repository that a pull request comes from, as GitHub describes it.
OWN = {"full_name": "owner/project", "fork": False}
FORK = {"full_name": "stranger/project", "fork": True}
# The repository that this one is a fork of.
UPSTREAM = {"full_name": "upstream/project", "fork": False}
DELETED = None


def pull_request(repository=OWN, labels=(), base="main", labeled=None, unlabeled=None, action="synchronize"):
    event = {"pull_request": {"head": {"repo": repository}, "labels": [{"name": one} for one in labels]}}
    event["pull_request"]["base"] = {"sha": "0123abc"}
    event["action"] = "labeled" if labeled else "unlabeled" if unlabeled else action
    event["label"] = {"name": labeled or unlabeled}
    return {"event_name": "pull_request", "ref": "refs/pull/7/merge", "base_ref": base, "event": event}


PUSH = {"event_name": "push", "event": {}}
WEEKLY = {"event_name": "schedule", "event": {}}
BY_HAND = {"event_name": "workflow_dispatch", "event": {}}


def after(event="pull_request", name="GPU memory", repository=OWN, conclusion="success"):
    """The event after another workflow has ended."""
    run = {
        "event": event,
        "name": name,
        "id": 5,
        "workflow_id": 3,
        "conclusion": conclusion,
        "head_repository": repository and {**repository, "owner": {"login": repository["full_name"].split("/")[0]}},
        "head_branch": "$(touch injected)",
        "head_sha": "c0ffee",
    }
    event = {"workflow_run": run, "repository": {"default_branch": "main"}}
    return {"event_name": "workflow_run", "event": event}


def artifact(folder, name, files):
    """An artifact of another run, from the texts of its files."""
    there = Path(tempfile.mkdtemp(dir=folder)) / name
    there.mkdir()
    for file, text in files.items():
        (there / file).write_text(text)
    return {name: there}


def report(mode="estimate", **more):
    """A report with only the fields that the workflows check."""
    lists = {"expected": [], "runs": [{"mode": mode}], "verdicts": [], "skipped": []}
    return {"version": 2, "tool": {}, "status": "pass", **lists, **more}


def comments(one):
    """The arguments of its calls of `cargo vram comment`."""
    return [call[2:] for call in one.calls("cargo-vram") if call[1] == "comment"]


def label(comment):
    return comment[comment.index("--label") + 1]


def post(folder, event, document=None, **more):
    """Runs the workflow that comments on another run. A document is the report of that run."""
    artifacts = artifact(folder, "vram-report", {"report.json": json.dumps(document)}) if document else {}
    return run("vram-comment.yml", event, folder, artifacts=artifacts, **more)


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
    one = run("vram.yml", pull_request(FORK), folder)
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
        (pull_request(), ["--base=origin/main", "--why"]),
        (pull_request(FORK, base="release/1"), ["--base=origin/release/1", "--why"]),
        (pull_request(base="$(touch injected) *"), ["--base=origin/$(touch injected) *", "--why"]),
        (PUSH, []),
    ):
        one = run("vram.yml", event, folder)
        expect(one.results == {"estimate": "success"} and bases(one) == told, (event, bases(one), one.log))


@test
def a_checkout_of_another_user_has_a_base(folder):
    one = run("vram.yml", pull_request(), folder, environment={"STAND_IN_CONTAINER": "1"})
    expect(one.results == {"estimate": "success"} and bases(one) == ["--base=origin/main", "--why"], one.log)


@test
def a_base_is_an_input_and_left_out_where_it_cannot_be(folder):
    for inputs, told in (
        ({"base": "v1.0"}, ["--base=v1.0", "--why"]),
        ({"base": "v1.0", "why": "false"}, ["--base=v1.0"]),
        ({"base": ""}, []),
        ({"args": "--base v1.0"}, ["--base", "--why"]),
        ({"args": "--base v1.0 --why"}, ["--base", "--why"]),
        ({"args": "-m a --archive-file models.tar.zst"}, []),
        ({"command": "estimate"}, []),
        ({"base": "v1.0", "rebuild": "true"}, ["--base=v1.0", "--rebuild", "--why"]),
        ({"base": "", "rebuild": "true"}, []),
        ({"args": "--base v1.0 --rebuild", "why": "false"}, ["--base", "--rebuild"]),
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
    one = post(folder, after(), report())
    expect(one.results == {"comment": "success"}, one.log)
    [comment] = comments(one)
    place = "https://github.invalid/owner/project/actions/runs/5"
    expect(comment[-5:] == ["--on-change-only", "--label", "estimated", "--artifact-url", place], comment)
    expect("[cache/" not in one.log, "a job with write permissions used a cache")
    for mode in ("measure", "estimate"):
        [comment] = comments(post(folder, after(name="GPU memory, measured"), report(mode)))
        expect(label(comment) == "measured", comment)


@test
def a_push_and_a_run_without_a_report_get_no_comment(folder):
    one = post(folder, after(event="push"))
    expect(one.results == {"comment": "skipped"}, one.results)
    one = post(folder, after())
    expect(one.results == {"comment": "success"} and not one.ran, one.log)


@test
def a_run_that_failed_without_a_report_takes_back_what_a_comment_says(folder):
    one = post(folder, after(conclusion="failure"))
    expect(one.results == {"comment": "success"}, one.log)
    [comment] = comments(one)
    expect(comment == ["--no-report", "--label", "estimated", "--artifact-url", comment[-1]], comment)


@test
def a_fork_never_comments_as_measured(folder):
    """A fork gives its workflows the names that it wants, and its artifacts the reports that it wants."""
    for repository in (FORK, UPSTREAM, DELETED):
        for name, conclusion, told in (
            ("GPU memory", "success", ["estimated"]),
            ("GPU memory", "failure", ["estimated"]),
            ("GPU memory, in parts", "success", ["estimated"]),
            ("GPU memory, measured", "success", []),
            ("GPU memory, measured", "failure", ["fork-measured"]),
        ):
            one = post(folder, after(name=name, repository=repository, conclusion=conclusion), report())
            labels = [label(comment) for comment in comments(one)]
            expect(one.results == {"comment": "success"} and labels == told, (repository, name, conclusion, labels))
            # A measured run of a fork has no report of its own, so this one is forged.
            read = any("--report" in comment for comment in comments(one))
            expect(read == (name != "GPU memory, measured"), (repository, name, conclusion))
    # The label of an approved measurement, too: the fork's programs ran beside the tool that measured.
    [comment] = comments(measured_fork(folder))
    expect(label(comment) == "fork-measured", comment)


@test
def a_fork_reports_only_estimates(folder):
    """A comment shows the mode of each run, whatever its label is."""
    measured = {"mode": "measure", "status": "pass"}
    for repository in (FORK, UPSTREAM, DELETED):
        for document in (
            report("measure"),
            report("Estimate"),
            report(runs=[{"mode": "estimate"}, {"mode": "measure"}]),
            report(runs=[{}]),
            report(verdicts=[measured]),
            report(verdicts=[{**measured, "status": "fail"}]),
            report(growth=[measured]),
        ):
            one = post(folder, after(repository=repository), document)
            expect(one.results == {"comment": "failure"} and not comments(one), (repository, document))
        estimated = {"mode": "estimate", "status": "fail"}
        one = post(folder, after(repository=repository), report(verdicts=[estimated]))
        expect(one.results == {"comment": "success"} and comments(one), one.log)


CHECK = "Check the size and the shape of the report"


@test
def a_report_is_checked_before_anything_reads_it(folder):
    jobs = [job for path in WORKFLOWS for job in load(path)["jobs"].values()
            if job.get("permissions", {}).get("pull-requests") == "write"]
    expect(len(jobs) == 2, f"{len(jobs)} jobs can comment")
    for job in jobs:
        get, check = job["steps"][:2]
        expect("download-artifact" in get["uses"] and check.get("name") == CHECK, job["steps"][:2])
        expect("if" in check and "continue-on-error" not in check, check)
        expect(check["run"] == jobs[0]["steps"][1]["run"], "the jobs check their reports in two ways")


@test
def what_is_no_report_is_refused(folder):
    good, foreign = json.dumps(report()), "::error::foreign"
    texts = [
        "", "null", "[]", foreign, good[:-1], good + good, f"[{good}]", json.dumps(foreign),
        *(json.dumps({key: value for key, value in report().items() if key != left_out}) for left_out in report()),
        *(json.dumps({**report(), key: foreign}) for key in report() if key != "status"),
        json.dumps({**report(), "status": 1}), json.dumps({**report(), "runs": {"a": {"mode": "estimate"}}}),
    ]
    artifacts = [artifact(folder, "vram-report", {"report.json": text}) for text in texts]
    artifacts.append(artifact(folder, "vram-report", {"report.json": good, foreign: good}))
    artifacts.append(artifact(folder, "vram-report", {"another.json": good}))

    def edited(edit):
        artifacts.append(artifact(folder, "vram-report", {"report.json": good}))
        edit(artifacts[-1]["vram-report"] / "report.json")

    def link(path):
        path.unlink()
        path.symlink_to(ROOT / "Cargo.toml")

    def link_to_a_report(path):
        path.rename(path.parent.parent / "elsewhere.json")
        path.symlink_to(path.parent.parent / "elsewhere.json")

    def folder_instead(path):
        path.unlink()
        path.mkdir()

    def large(path):
        path.write_text(good + " " * ((64 << 20) + 1 - len(good)))

    for edit in (link, link_to_a_report, folder_instead, large, lambda path: (path.parent / "more").mkdir()):
        edited(edit)
    for there in artifacts:
        one = run("vram-comment.yml", after(), folder, artifacts=there)
        files = [path.name for path in there["vram-report"].iterdir()]
        expect(one.results == {"comment": "failure"}, (files, one.log))
        expect(len(one.ran) == 1 and len(one.commands) == 1, f"something ran after the check: {files} {one.log}")
        expect(one.commands[0].startswith("::error::Refused the artifact vram-report: "), one.commands)
        expect("foreign" not in one.log, "the check printed a text of the report")


@test
def what_the_real_program_writes_passes_the_check(folder):
    """The real program writes its report again, with all top-level keys."""
    tool = {"name": "cargo-vram", "version": "0.1.0", "fingerprint": "0"}
    nothing = {"commit": None, "dirty": None, "partition": None, "problems": []}
    written = Path(tempfile.mkdtemp(dir=folder)) / "report.json"
    written.write_text(json.dumps({**report(runs=[]), "command": "check", "tool": tool, **nothing}))
    result = subprocess.run([VRAM, "vram", "merge", str(written), "--message-format", "json"],
                            capture_output=True, text=True, timeout=60)
    document = json.loads(result.stdout)
    for repository in (OWN, FORK):
        one = post(folder, after(repository=repository), document)
        expect(one.results == {"comment": "success"} and comments(one), (document, one.log))


@test
def only_those_who_may_push_are_measured_at_once(folder):
    own_branch_of_a_fork = {**OWN, "fork": True}
    for event, variables, results in (
        (PUSH, GPU, ["success", "success"]),
        (pull_request(), GPU, ["success", "success"]),
        (pull_request(own_branch_of_a_fork), GPU, ["success", "success"]),
        (pull_request(), {}, ["skipped", "skipped"]),
        (pull_request(FORK), GPU, ["skipped", "skipped"]),
        (pull_request(FORK, labels=["measure"]), GPU, ["success", "skipped"]),
        (pull_request(FORK, labels=["measure"]), {}, ["success", "skipped"]),
        (pull_request(FORK, labels=["measure"], labeled="measure"), GPU, ["success", "skipped"]),
        (pull_request(FORK, labels=["measure"], labeled="bug"), GPU, ["success", "skipped"]),
        (pull_request(UPSTREAM), GPU, ["skipped", "skipped"]),
        (pull_request(UPSTREAM, labels=["measure"]), GPU, ["success", "skipped"]),
        # A label starts the workflow after the fork was deleted.
        (pull_request(DELETED, labels=["bug"], labeled="bug"), GPU, ["skipped", "skipped"]),
        (pull_request(DELETED, labels=["measure"], labeled="measure"), GPU, ["success", "skipped"]),
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


def measured_fork(folder, event=None, **environment):
    """Runs the workflow that measures a fork, after that fork's models were built."""
    models = artifact(folder, "vram-models", {"models.tar.zst": "", "cargo-vram": ""})
    event = event or after(name="GPU memory, measured", repository=FORK)
    return run("vram-measure-forks.yml", event, folder, variables=GPU, artifacts=models, environment=environment)


@test
def a_fork_is_measured_where_somebody_is_asked(folder):
    one = measured_fork(folder)
    expect(set(one.results.values()) == {"success"}, (one.results, one.log))
    [comment] = comments(one)
    expect(comment[-1] == "https://github.invalid/owner/project/actions/runs/6", comment)
    workflow = load(".github/workflows/vram-measure-forks.yml")
    for name, job in workflow["jobs"].items():
        takes = any("vram-models" in str(step.get("with")) for step in job["steps"])
        expect(not takes or job.get("environment") == "gpu-forks", f"{name} runs a fork's programs without approval")
        expect(not takes or job["permissions"] == {"actions": "read"}, f"{name} has too many permissions")
    for reviewers in ("0", ""):
        one = measured_fork(folder, STAND_IN_REVIEWERS=reviewers)
        others = {name: result for name, result in one.results.items() if name != "guarded"}
        expect(one.results["guarded"] == "failure" and set(others.values()) == {"skipped"}, one.results)
    for event in (after(name="GPU memory, measured"), after(event="push", repository=FORK)):
        one = measured_fork(folder, event)
        expect(set(one.results.values()) == {"skipped"}, one.results)


@test
def nobody_is_asked_about_a_fork_without_the_label(folder):
    """The fork's own vram-measure.yml may build the models without the label."""
    other_commit = after(name="GPU memory, measured", repository=FORK)
    other_commit["event"]["workflow_run"]["head_sha"] = "f00d"
    for one in (measured_fork(folder, STAND_IN_LABEL="measured"), measured_fork(folder, other_commit)):
        expect(list(one.results.values()) == ["success", "skipped", "skipped", "skipped"], (one.results, one.log))
    # The fork chose the name of its branch.
    [pulls] = [call for call in measured_fork(folder).calls("gh") if "repos/owner/project/pulls" in call]
    expect(pulls[-1] == "head=stranger:$(touch injected)", pulls)


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
def what_a_gpu_runner_runs_comes_from_no_cache(folder):
    """On some servers, a fork's programs that were measured can write the cache of the main branch."""
    forks = after(name="GPU memory, measured", repository=FORK)
    events = {"vram-measure.yml": PUSH, "vram-weekly.yml": WEEKLY, "vram-measure-forks.yml": forks}
    runners = {Path(path).name: [job["runs-on"] for job in load(path)["jobs"].values()] for path in WORKFLOWS}
    with_gpu = {name for name, labels in runners.items() if any("VRAM_GPU_RUNNER" in label for label in labels)}
    expect(with_gpu == set(events), with_gpu)
    for path, event in events.items():
        models = artifact(folder, "vram-models", {"models.tar.zst": "", "cargo-vram": ""})
        one = run(path, event, folder, variables=GPU, artifacts=models)
        expect(set(one.results.values()) == {"success"} and "[cache/" not in one.log, (path, one.log))


FOREIGN = {"STAND_IN_FOREIGN": "1"}


@test
def foreign_text_starts_no_workflow_command(folder):
    runs = {
        "vram.yml": run("vram.yml", pull_request(FORK), folder, environment={**FOREIGN, "STAND_IN_CODE": "100"}),
        "vram-measure.yml": run("vram-measure.yml", pull_request(), folder, variables=GPU, environment=FOREIGN),
        "vram-matrix.yml": run("vram-matrix.yml", BY_HAND, folder, environment=FOREIGN),
        "vram-weekly.yml": run("vram-weekly.yml", WEEKLY, folder, variables=GPU, environment=FOREIGN),
        "vram-measure-forks.yml": measured_fork(folder, **FOREIGN),
        "vram-comment.yml": post(folder, after(), report(), environment=FOREIGN),
    }
    # These two run only the code of the commit that they check out.
    expect({Path(path).name for path in WORKFLOWS} - set(runs) == {"ci.yml", "release.yml"}, WORKFLOWS)
    for path, one in runs.items():
        expect("foreign" in one.log, f"{path}: no program printed foreign text")
        started = [command for command in one.commands if "foreign" in command]
        expect(not started, f"{path}: {started}")
        # The workflows' own commands still count.
        expect(("github of" in "".join(one.commands)) == ("github of" in one.log), (path, one.commands))
    expect("The check failed" in "".join(runs["vram.yml"].commands), runs["vram.yml"].commands)


@test
def a_script_that_stops_no_commands_starts_foreign_ones(folder):
    """Without this, the test above would pass if the runner found no commands."""
    for part, instead, count in (("exec 2>&1; ", "", 4), ("exec 2>&1; echo", "true", 8)):
        reports = artifact(folder, "vram-report", {"report.json": json.dumps(report())})
        one = Run(tempfile.mkdtemp(dir=folder), ".github/workflows/vram-comment.yml", after(), artifacts=reports,
                  environment=FOREIGN)
        step = one.workflow["jobs"]["comment"]["steps"][-1]
        step["run"] = step["run"].replace(part, instead)
        one.all()
        started = [command for command in one.commands if "foreign" in command]
        expect(len(started) == count, (part, started))


@test
def the_parts_are_joined(folder):
    one = run("vram-matrix.yml", BY_HAND, folder)
    expect(set(one.results.values()) == {"success"}, (one.results, one.log))
    parts = [call[call.index("--partition") + 1] for call in one.calls("cargo-vram") if "--partition" in call]
    expect(parts == [f"hash:{part}/4" for part in range(1, 5)], parts)
    merge = next(call for call in one.calls("cargo-vram") if call[1] == "merge")
    expect([Path(part).name for part in merge[2:6]] == [f"report-{part}.json" for part in range(1, 5)], merge)
    for code in ("100", "101"):
        one = run("vram-matrix.yml", BY_HAND, folder,
                  environment={"STAND_IN_CODE": code})
        expect(one.results == {"build": "success", "part": "failure", "merge": "success"}, (code, one.results))
        expect("vram-report" in one.own, "the existing reports were not merged")


@test
def a_build_that_fails_is_no_skipped_job(folder):
    """GitHub counts a skipped job as passed, and each of these jobs may be the required one."""
    def fail(workflow):
        [pack] = [step for step in workflow["jobs"]["build"]["steps"] if step.get("name") == "Pack the models"]
        pack["run"] = "exit 1"

    one = run("vram-matrix.yml", BY_HAND, folder, change=fail)
    expect(one.results == {"build": "failure", "part": "skipped", "merge": "failure"}, one.results)
    for event in (PUSH, pull_request()):
        one = run("vram-measure.yml", event, folder, variables=GPU, change=fail)
        expect(one.results == {"build": "failure", "measure": "failure"}, one.results)
        expect(one.own == {}, one.own)


@test
def nothing_of_an_earlier_job_on_a_gpu_runner_is_used(folder):
    """A runner of one's own keeps the files of the last job."""
    for path, event in (("vram-measure.yml", PUSH), ("vram-weekly.yml", WEEKLY)):
        def leave(workflow):
            steps = workflow["jobs"]["measure"]["steps"]
            left = {"name": "An earlier job", "run": "echo old | tee report.json models.tar.zst cargo-vram > /dev/null"}
            broken = {"name": "A download that fails", "run": "exit 1"}
            at = next(number for number, step in enumerate(steps) if "download-artifact" in step.get("uses", ""))
            workflow["jobs"]["measure"]["steps"] = [left, *steps[:at], broken, *steps[at:]]

        one = run(path, event, folder, variables=GPU, change=leave)
        expect(one.results["measure"] == "failure" and set(one.own) <= {"vram-models"}, (path, one.results, one.own))


@test
def once_a_week_what_drifted_fails(folder):
    expect(set(run("vram-weekly.yml", WEEKLY, folder).results.values()) == {"skipped"}, "it ran without a GPU")
    one = run("vram-weekly.yml", WEEKLY, folder, variables=GPU)
    expect(set(one.results.values()) == {"success"}, one.log)
    one = run("vram-weekly.yml", WEEKLY, folder, variables=GPU, environment={"STAND_IN_CODE": "100"})
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


def gitlab(folder, cached=(), **given):
    """Runs the job of docs/gitlab.md; returns the job, its folder and its calls of all programs.

    Before it, the cache writes the files `cached`: texts by their paths in the project.
    """
    home = Path(tempfile.mkdtemp(dir=folder))
    [job] = yaml.safe_load(snippets()[".gitlab-ci.yml"]).values()
    (home / "project").mkdir()
    check_out(home / "project", job["variables"].get("GIT_DEPTH", "20"))
    for program in STOOD_IN:
        stand_in(home / "bin" / program)
    for name, text in dict(cached).items():
        (home / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "project" / name).write_text(text)
        (home / "project" / name).chmod(0o755)
    variables = {name: value.replace("$CI_PROJECT_DIR", str(home / "project")) for name, value in job["variables"].items()}
    for lines in (job["before_script"] + job["script"], job["after_script"]):
        result = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(lines)], cwd=home / "project", capture_output=True, text=True,
            env={"PATH": f"{home / 'bin'}:{SYSTEM}", "HOME": str(home), "STAND_IN_RECORD": str(home / "record"),
                 "CI_PROJECT_DIR": str(home / "project"), **given, **variables})
        expect(result.returncode == 0, result.stderr)
    record = [json.loads(line) for line in (home / "record").read_text().splitlines()]
    asked.update(tuple(call["arguments"]) for call in record if call["program"] == "cargo-vram")
    return job, home / "project", record


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
        _, _, record = gitlab(folder, **given)
        calls = [call["arguments"] for call in record if call["program"] == "cargo-vram"]
        bases = [argument for call in calls for argument in call if argument.startswith("--base")]
        expect(bases == told and not any("" in call for call in calls), (given, calls))


@test
def gitlab_takes_no_tool_from_a_cache(folder):
    """The code of a merge request may have written the cache."""
    forged = {"tool/.crates.toml": "", "tool/bin/cargo-vram": "#!/bin/sh\ntouch injected\necho '{}' > report.json\n"}
    job, project, record = gitlab(folder, forged)
    [install] = [call for call in record if call["program"] == "cargo" and call["arguments"][0] == "install"]
    expect(len([call for call in record if call["program"] == "cargo-vram"]) == 2, "the tool of the cache was run")
    # Cargo compiles the sources that lie in its home, and reuses what lies in the target folder.
    cached = [project / path for path in job["cache"]["paths"]]
    root = install["arguments"][install["arguments"].index("--root") + 1]
    for used in filter(None, (root, install["cargo_home"], install["target"])):
        used = project / used
        expect(not any(used.is_relative_to(path) or path.is_relative_to(used) for path in cached), f"{used} is cached")


@test
def gitlab_shares_no_cache_between_merge_requests(folder):
    [job] = yaml.safe_load(snippets()[".gitlab-ci.yml"]).values()
    expect("$CI_MERGE_REQUEST_IID" in job["cache"]["key"]["prefix"], job["cache"])


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
