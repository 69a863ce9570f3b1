# Replaces a program that needs the network, a GPU or minutes. Records its calls, and writes the files that the real
# program would write.
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile

program, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(os.environ["STAND_IN_RECORD"], "a") as record:
    folders = {"cargo_home": os.environ.get("CARGO_HOME"), "target": os.environ.get("CARGO_TARGET_DIR")}
    record.write(json.dumps({"program": program, "arguments": arguments, **folders}) + "\n")


def after(*names):
    """The value of an option, given one of its names."""
    return next((arguments[at + 1] for at, one in enumerate(arguments) if one in names), None)


def me(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(sys.argv[0], path)


def print_foreign_text():
    """Prints what a model, a build script or a report could make the program print."""
    if not os.environ.get("STAND_IN_FOREIGN"):
        return
    # Scripts read these outputs.
    is_read = arguments[0] == "metadata" or after("--message-format") in ("markdown", "github")
    lines = "::error::foreign", "  ::set-output name=exit-code::foreign", "a ##[add-mask]foreign", "##[error]foreign"
    for stream in [sys.stderr] if is_read else [sys.stderr, sys.stdout]:
        print("\n".join(lines), file=stream, flush=True)


def release():
    """The archive of a release, with this program in it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        entry = archive.gettarinfo(sys.argv[0], "cargo-vram")
        entry.mtime = 0
        with open(sys.argv[0], "rb") as binary:
            archive.addfile(entry, binary)
    data = bytearray(file.getvalue())
    data[4:8] = bytes(4)  # the time in the gzip header
    return bytes(data)


def cargo():
    here = os.getcwd()
    print_foreign_text()
    match arguments[0]:
        case "metadata":
            version = os.environ.get("STAND_IN_VERSION", "0.1.0")
            package = {"name": "cargo-vram", "version": version}
            print(json.dumps({"packages": [package], "target_directory": f"{here}/target", "workspace_root": here},
                             separators=(",", ":")))
        case "install" if arguments[1] == "cargo-nextest":
            assert after("--version") and "--locked" in arguments, "the version is not pinned"
        case "install":
            assert after("--git") or os.path.isfile(after("--path") + "/Cargo.toml"), "there is nothing to install"
            # Cargo does nothing if this file has the package.
            if not os.path.isfile(after("--root") + "/.crates.toml"):
                me(after("--root") + "/bin/cargo-vram")
        case "build":
            me("target/release/cargo-vram")
        case _:
            sys.exit(f"stand_in.py does not replace cargo {arguments[0]}")


def report(mode):
    """A report with only the fields that scripts read."""
    verdicts = [verdict(mode, "pass", 3), verdict(mode, "warn", 4), verdict(mode, "fail", None)]
    lists = {"expected": [], "runs": [{"mode": mode}], "verdicts": verdicts, "skipped": []}
    return {"version": 2, "tool": {}, "status": "fail", **lists}


def verdict(mode, status, line):
    """A verdict with only the fields that scripts read."""
    names = {"package": "zoo", "model": "vgg16", "mode": mode, "gpu": "l4", "pass": "warm", "metric": "live"}
    place = {"file": "budgets.yaml", "line": line, "column": 5}
    return {**names, "rule": "budget", "status": status, "message": f"line {line}: it is so", **place}


def has_history():
    """Whether the folder is in a git checkout that git trusts and that is not shallow."""
    if os.environ.get("STAND_IN_CONTAINER") and os.environ.get("GIT_CONFIG_KEY_0") != "safe.directory":
        return False
    here = os.getcwd()
    while here != "/" and not os.path.isdir(here + "/.git"):
        here = os.path.dirname(here)
    return os.path.isdir(here + "/.git") and not os.path.exists(here + "/.git/shallow")


def vram():
    assert arguments[0] == "vram"
    print_foreign_text()
    if any(one.startswith("--base") for one in arguments) and (after("--archive-file") or not has_history()):
        print("there is no base to compare with", file=sys.stderr)
        sys.exit(2)
    output = after("--output", "-o")
    match arguments[1]:
        case "completions":
            assert arguments[2] in ("bash", "elvish", "fish", "powershell", "zsh"), arguments
            print("complete")
        case "man":
            assert os.path.isdir(arguments[2]), "the folder of the manual pages does not exist"
            with open(arguments[2] + "/cargo-vram.1", "w") as page:
                page.write(".TH")
        case "check" | "estimate" | "measure" | "archive" | "merge":
            code = int(os.environ.get("STAND_IN_CODE", "0")) if arguments[1] == "check" else 0
            if output and code != 2:
                with open(output, "w") as file:
                    if arguments[1] != "archive" and after("--message-format") != "json":
                        sys.exit(print("a table", file=file))
                    json.dump(report("measure" if "--measure" in arguments else "estimate"), file)
            if after("--record"):
                os.makedirs(after("--record"))
            if after("--message-format") in ("markdown", "github", "junit"):
                command = "::notice::" if after("--message-format") == "github" else ""
                print(f"{command}{after('--message-format')} of {arguments[2]}")
            sys.exit(code)
        case "--version" | "doctor":
            pass
        case "comment":
            assert "--no-report" in arguments or os.path.isfile(after("--report")), "no report to post"
            assert os.environ["GITHUB_TOKEN"], "no token to post with"
        case _:
            sys.exit(f"stand_in.py does not replace cargo vram {arguments[1]}")


def gh():
    if arguments[0] == "api":
        assert os.environ["GH_TOKEN"]
        [path] = [one for one in arguments if one.startswith("repos/")]
        pulls = [{"head": {"sha": "c0ffee"}, "labels": [{"name": os.environ.get("STAND_IN_LABEL", "measure")}]}]
        answers = {"gpu-forks": os.environ.get("STAND_IN_REVIEWERS", "1"), "pulls": json.dumps(pulls)}
        print(answers.get(path.rsplit("/", 1)[-1], "1"))
    else:
        missing = [one for one in arguments if one.endswith((".gz", ".sha256")) and not os.path.isfile(one)]
        assert not missing, missing


def curl():
    data = release()
    if arguments[-1].endswith(".sha256"):
        data = f"{hashlib.sha256(data).hexdigest()}  cargo-vram.tar.gz\n".encode()
    elif os.environ.get("STAND_IN_DAMAGE"):
        data = data[:-1]
    with open(after("--output"), "wb") as file:
        file.write(data)


match program:
    case "cargo":
        cargo()
    case "cargo-vram":
        vram()
    case "gh":
        gh()
    case "curl":
        curl()
    case "rustc":
        print("rustc 1.92.0 (of a test)")
    case "strip" | "run" | "apt-get":
        pass
    case _:
        sys.exit(f"a workflow must not run {program}")
