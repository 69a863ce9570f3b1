"""Checks what the real cargo-vram writes for CI systems: `reports.py CARGO-VRAM [SCHEMA]`.

JUnit XML must match a schema of another project. Summaries and annotations must be within GitHub's limits.
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lxml import etree

VRAM = str(Path(sys.argv[1]).resolve())
SCHEMA = etree.XMLSchema(etree.parse(sys.argv[2])) if len(sys.argv) > 2 else None

# GitHub cuts a step's summary at a MiB, refuses a longer comment than this, and shows only ten annotations of each kind.
SUMMARY, COMMENT, ANNOTATIONS = 1 << 20, 65_536, 10
MIB = 1 << 20
HOSTILE = [
    "]]>",
    "<![CDATA[",
    "\x00\x01\x08\x0b\x1b[2J\x7f\x85",
    "</failure></testcase><testcase name='other'/>",
    "\"><!-- -->&lt;&#0;&amp;",
    "\ufffe\uffff\u202e\u2028",
    "<?xml version='1.1'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>&b;",
    "a\nb\r\n\tc",
    "\U0001f4a5\U0010ffff",
    "",
]
failed = 0


def expect(what, message):
    global failed
    if not what:
        failed += 1
        print(f"FAIL {message}")


def peaks(live):
    return {"live": live * MIB, "reserved": 2 * live * MIB, "process": 3 * live * MIB}


def run(model, package="zoo", **more):
    gpu = {"id": "l4", "name": "NVIDIA L4", "total_bytes": 24 << 30, "available_bytes": 23 << 30, "driver": "virtual"}
    return {
        "model": model, "package": package, "mode": "estimate", "task": "train", "burn": "0.21.0", "inputs": {}, "gpu": gpu,
        "parameters": None, "peaks": {"warm": peaks(1000), "cold": peaks(1000)}, "steps": [], "oom": None,
        "autotune": {"recorded": 0, "nearest": 0, "assumed": 0}, "streams": 1, "device_reads": 0, "assumptions": [],
        "error": None, "seconds": 1.5, **more,
    }


def verdict(model, status, message, package="zoo"):
    return {
        "package": package, "model": model, "mode": "estimate", "gpu": "l4", "pass": "warm", "metric": "live",
        "rule": "budget", "limit": MIB, "actual": 2 * MIB, "baseline": None, "status": status, "message": message,
        "file": "budgets.yaml", "line": 3, "column": 5,
    }


def report(runs, verdicts=(), problems=(), **more):
    return {
        "version": 2, "command": "check", "tool": {"name": "cargo-vram", "version": "0.1.0", "fingerprint": "0"}, "commit": None, "dirty": None,
        "partition": None, "expected": [f"{one['package']}/{one['model']}" for one in runs], "status": "fail",
        "runs": list(runs), "verdicts": list(verdicts), "skipped": [], "problems": list(problems), **more,
    }


def rendered(report, form):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        file.write_text(json.dumps(report))
        result = subprocess.run([VRAM, "vram", "merge", str(file), "--message-format", form], capture_output=True, timeout=60)
    expect(result.returncode in (0, 100, 101), f"{form}: {result.returncode} {result.stderr.decode()}")
    return result.stdout


def plain(text):
    """Makes a name that a report may have: one line of visible characters. The tool refuses a report with another."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:150].strip() or "x"


def one_of_each(text):
    """A report with a run of each outcome and a broken target. All texts are `text`, and all names have it in them."""
    name = plain(text)
    named = {one: plain(f"{one}{text}") for one in ("passed", "warned", "over", "full", "died")}
    oom = {"pass": "warm", "step": 1, "phase": "optimizer", "kernel": text, "requested": MIB, "reserved": MIB, "available": 0}
    runs = [run(one, package=name) for one in (named["passed"], named["warned"], named["over"])]
    runs.append(run(named["full"], package=name, oom=oom))
    runs.append(run(named["died"], package=name, error={"code": text, "message": text, "help": text}))
    runs[0]["gpu"] = {**runs[0]["gpu"], "id": plain(f"l4{text}")}
    verdicts = [verdict(named[one], status, text, name) for one, status in
                (("passed", "pass"), ("warned", "warn"), ("over", "fail"), ("full", "fail"), ("died", "error"))]
    verdicts[3]["rule"] = "oom"
    verdicts[0]["gpu"] = runs[0]["gpu"]["id"]
    return report(runs, verdicts, [{"package": name, "target": text, "code": text, "message": text, "help": text}],
                  skipped=[{"check": "growth", "model": text, "why": text}])


def valid_junit():
    """JUnit XML is valid with each hostile text, and with all of them at once."""
    for text in [*HOSTILE, "".join(HOSTILE)]:
        try:
            document = etree.fromstring(rendered(one_of_each(text), "junit"), etree.XMLParser(resolve_entities=False))
        except etree.XMLSyntaxError as error:
            expect(False, f"{text!r}: {error}")
            continue
        expect(SCHEMA.validate(document), f"{text!r}: {SCHEMA.error_log}")
        found = {tag: len(document.findall(f".//{tag}")) for tag in ("testcase", "failure", "error", "system-out")}
        expect(found == {"testcase": 6, "failure": 2, "error": 2, "system-out": 1}, f"{text!r}: {found}")
        counted = {name: sum(int(suite.get(name)) for suite in document) for name in ("tests", "failures", "errors")}
        expect(counted == {"tests": 6, "failures": 2, "errors": 2}, f"{text!r}: {counted}")
    expect(SCHEMA.validate(etree.fromstring(rendered(report([]), "junit"))), "an empty report is not valid")
    # The schema refuses an unknown attribute and a misplaced element.
    unknown, misplaced = copy.deepcopy(document), copy.deepcopy(document)
    unknown[0].set("gpu", "l4")
    misplaced.append(misplaced[0][0])
    expect(not SCHEMA.validate(unknown) and not SCHEMA.validate(misplaced), "the schema refuses nothing")


def within_what_github_shows():
    """A summary of very many models stays within the limits, with long names, long messages and a verdict for each."""
    long = "x|@y\u00e9\n" * 100
    baseline = {"from": "lock", "burn": "0.21.0", "inputs": {}, "parameters": None, "differs": [long],
                "peaks": {"warm": peaks(900), "cold": peaks(900)}}
    models = [plain(f"{long[:140]}{at}") for at in range(900)]
    wrong = [verdict(model, ("fail", "warn", "pass")[at % 3], long) for at, model in enumerate(models)]
    for one in wrong[2::3]:
        one.update(rule="growth", baseline=4 * MIB, limit=5 * MIB)  # an improvement
    edited = [{"model": model, "limit": long, "before": long, "after": long, "file": long, "line": 3} for model in models]
    large = report([run(model, baseline=baseline) for model in models], wrong,
                   base={"revision": long, "commit": long, "edited": edited},
                   skipped=[{"check": "growth", "model": long, "why": long}] * 900)
    summary = rendered(large, "markdown")
    expect(len(summary) <= COMMENT < SUMMARY, f"a summary of {len(summary)} bytes")
    expect(b"left out for length" in summary and summary.startswith("### ❌".encode()), summary[:500])
    # The least important parts are left out first: unchanged models, then skipped checks.
    verdicts = [verdict(f"m{at}", "pass", "") if at != 7 else verdict("m7", "fail", "it is over") for at in range(2000)]
    quiet = rendered(report([run(f"m{at}") for at in range(2000)], verdicts), "markdown")
    expect(len(quiet) <= COMMENT and b"it is over" in quiet and b"more runs, left out" in quiet, quiet[:500])
    annotations = rendered(large, "github").decode().splitlines()
    for kind, rest in (("error", 300), ("warning", 300), ("notice", 300 + len(edited))):
        of_kind = [line for line in annotations if line.startswith(f"::{kind} ")]
        expect(len(of_kind) == ANNOTATIONS, f"{len(of_kind)} annotations of {kind}")
        expect(of_kind[-1:] and of_kind[-1].endswith(f"::and {rest - ANNOTATIONS + 1} more, see the report"), of_kind[-1:])
    expect(len(annotations) == 3 * ANNOTATIONS, f"{len(annotations)} annotations")


within_what_github_shows()
if SCHEMA is None:
    print("skipped the check of JUnit XML: no schema was given")
else:
    valid_junit()
print("FAIL" if failed else "ok   reports for CI systems")
sys.exit(1 if failed else 0)
