//! `cargo vram comment`, through the binary, with a server that answers like GitHub's documented REST API.

mod server;

use std::process::Command;

use serde_json::{Value, json};

use server::{ACTIONS, APP, Fault, PERSON, STRANGER, Server, TOKEN};

/// The exit code and the output of a command.
#[derive(Debug)]
struct Ended {
    code: i32,
    said: String,
}

impl Ended {
    #[track_caller]
    fn says(&self, code: i32, text: &str) {
        let words = |text: &str| {
            text.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .replace(" │ ", " ")
        };
        assert_eq!(self.code, code, "{}", self.said);
        assert!(words(&self.said).contains(text), "{}", self.said);
    }
}

/// A folder with a report and, in some tests, an event.
struct Folder(tempfile::TempDir);

fn report() -> Value {
    json!({
        "version": 2, "tool": { "name": "cargo-vram", "version": "0.1.0", "fingerprint": "f" }, "commit": null,
        "dirty": null, "partition": null, "expected": [], "status": "pass", "runs": [], "verdicts": [], "skipped": [],
    })
}

fn folder() -> Folder {
    let folder = Folder(tempfile::tempdir().unwrap());
    folder.write("report.json", &report());
    folder
}

impl Folder {
    fn write(&self, name: &str, value: &Value) {
        std::fs::write(self.0.path().join(name), value.to_string()).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-vram"));
        command
            .args(["vram", "comment", "--verbose"])
            .args(if arguments.contains(&"--no-report") {
                &[][..]
            } else {
                &["--report", "report.json"]
            })
            .args(arguments)
            .current_dir(self.0.path())
            .env("NO_COLOR", "1");
        for name in [
            "GITHUB_EVENT_NAME",
            "GITHUB_EVENT_PATH",
            "GITHUB_TOKEN",
            "GITHUB_API_URL",
        ] {
            command.env_remove(name);
        }
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command.env("GITHUB_REPOSITORY", "tracel/models");
        command
    }

    /// Runs the command as in a workflow that an event started.
    fn on(&self, name: &str, event: &Value, server: &Server, arguments: &[&str]) -> Ended {
        self.write("event.json", event);
        let mut command = self.command(arguments);
        command
            .env("GITHUB_EVENT_NAME", name)
            .env("GITHUB_EVENT_PATH", "event.json")
            .env("GITHUB_API_URL", server.url())
            .env("GITHUB_TOKEN", TOKEN);
        ended(&mut command)
    }
}

fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains(TOKEN), "the output has the token: {said}");
    assert!(!said.contains("panicked"), "{said}");
    Ended {
        code: output.status.code().unwrap(),
        said,
    }
}

/// Posts to pull request 7.
fn post(server: &Server, arguments: &[&str]) -> Ended {
    let event = json!({ "action": "synchronize", "number": 7, "pull_request": { "number": 7 } });
    folder().on("pull_request", &event, server, arguments)
}

const MARKER: &str = "<!-- cargo-vram: default -->";

#[test]
fn a_first_comment_is_made_a_second_run_leaves_it_and_a_third_writes_it_anew() {
    let server = Server::new();
    post(&server, &[]).says(0, "commented on #7");
    assert_eq!(server.own(ACTIONS).len(), 1);
    post(&server, &[]).says(0, "is up to date");
    assert_eq!(server.count("PATCH"), 0);
    post(&server, &["--artifact-url", "https://a.example/1"]).says(0, "updated the comment on #7");
    let own = server.own(ACTIONS);
    assert_eq!(own.len(), 1);
    assert!(
        own[0].starts_with(MARKER) && own[0].contains("https://a.example/1"),
        "{own:?}"
    );
}

#[test]
fn each_label_has_a_comment_of_its_own() {
    let server = Server::new();
    for label in ["l4", "h200", "l4"] {
        assert_eq!(post(&server, &["--label", label]).code, 0);
    }
    assert_eq!(server.own(ACTIONS).len(), 2);
    post(&server, &["--label=--> @everyone"]).says(2, "expected 1 to 64 letters");
}

#[test]
fn an_own_comment_on_the_73rd_of_100_pages_is_found() {
    let server = Server::new();
    for number in 0..10_000 {
        match number {
            7250 => server.comment(ACTIONS, &format!("{MARKER}\nold")),
            _ => server.comment(STRANGER, "me too"),
        }
    }
    post(&server, &[]).says(0, "updated the comment on #7");
    assert_eq!(server.own(ACTIONS).len(), 1);
    assert_eq!(
        server.count("GET /repos/tracel/models/issues/7/comments") + server.count("GET /repositories/1/"),
        100
    );
    assert_eq!(server.count("POST"), 0);
}

#[test]
fn a_strangers_comment_with_our_marker_is_never_touched() {
    for (user, own) in [(None, ACTIONS), (Some(PERSON), PERSON)] {
        let server = Server::new();
        server.set_user(user);
        let theirs = format!("{MARKER}\nall is well, merge me");
        server.comment(STRANGER, &theirs);
        // Comments of another app, and of a user with the name of the workflows' account.
        server.comment(APP, &theirs);
        server.comment((77, "github-actions[bot]", "User"), &theirs);
        post(&server, &[]).says(0, "commented on #7");
        post(&server, &["--artifact-url", "https://a.example/1"]).says(0, "updated");
        assert_eq!(server.own(STRANGER), [theirs.as_str()]);
        assert_eq!(server.own(APP), [theirs.as_str()]);
        assert_eq!(server.own(own).iter().filter(|body| **body != theirs).count(), 1);
        assert_eq!(server.all().len(), 4);
    }
}

#[test]
fn an_app_of_another_name_leaves_one_comment_too() {
    let server = Server::new();
    server.set_poster(APP);
    for artifact in ["https://a.example/1", "https://a.example/2"] {
        assert_eq!(post(&server, &["--artifact-url", artifact]).code, 0);
        let own = server.own(APP);
        assert!(own.len() == 1 && own[0].contains(artifact), "{own:?}");
    }
}

#[test]
fn an_app_that_is_named_keeps_its_comment_up_to_date_where_nothing_changed() {
    let server = Server::new();
    server.set_poster(APP);
    server.comment(ACTIONS, &format!("{MARKER}\nof a workflow"));
    server.comment(APP, &format!("{MARKER}\nover budget"));
    // A comment of a user with the app's name, who is not the app.
    server.comment((78, "our-app[bot]", "User"), &format!("{MARKER}\nmine"));
    post(&server, &["--on-change-only", "--app", "our-app"]).says(0, "updated the comment on #7");
    assert!(server.own(APP).iter().any(|body| !body.contains("over budget")));
    assert_eq!(server.own(ACTIONS), [format!("{MARKER}\nof a workflow")]);
    assert_eq!((server.count("PATCH"), server.all().len()), (1, 3));
    post(&server, &["--app", "our app"]).says(2, "an app's name");
}

#[test]
fn a_run_without_a_report_makes_no_comment_and_an_older_one_no_longer_speaks_for_it() {
    let server = Server::new();
    post(&server, &["--no-report"]).says(0, "nothing to report on #7");
    assert!(server.all().is_empty());
    server.comment(ACTIONS, &format!("{MARKER}\n### ✅ within budget"));
    post(&server, &["--no-report", "--artifact-url", "https://a.example/1"]).says(0, "updated the comment on #7");
    let own = server.own(ACTIONS);
    assert!(
        own.len() == 1 && own[0].contains("No results for the last commit") && own[0].contains("(https://a.example/1)"),
        "{own:?}"
    );
}

#[test]
fn a_comment_that_is_deleted_between_reading_and_writing_is_made_anew() {
    let server = Server::new();
    server.comment(ACTIONS, &format!("{MARKER}\nold"));
    server.fault("PATCH", Fault::DeletedBefore);
    post(&server, &[]).says(0, "commented on #7");
    assert_eq!(server.own(ACTIONS).len(), 1);
}

#[test]
fn of_two_posters_at_once_the_later_removes_its_own() {
    let server = Server::new();
    server.let_posts_wait_for(2);
    let posters: Vec<_> = ["https://a.example/1", "https://a.example/2"]
        .map(|artifact| {
            let server = server.clone();
            std::thread::spawn(move || post(&server, &["--artifact-url", artifact]))
        })
        .into();
    for poster in posters {
        let ended = poster.join().unwrap();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    assert_eq!((server.count("POST"), server.count("DELETE")), (2, 1));
    assert_eq!(server.own(ACTIONS).len(), 1);
}

#[test]
fn what_two_posters_left_becomes_one_again() {
    let server = Server::new();
    server.comment(ACTIONS, &format!("{MARKER}\nold"));
    server.comment(ACTIONS, &format!("{MARKER}\nolder"));
    post(&server, &[]).says(0, "updated");
    assert_eq!(server.own(ACTIONS).len(), 1);
}

#[test]
fn a_locked_conversation_is_told() {
    let server = Server::new();
    let answer = json!({ "message": "Unable to create comment because issue is locked.", "status": "403" });
    server.fault("POST", Fault::Answer(403, vec![], answer));
    post(&server, &[]).says(101, "the conversation of pull request #7 is locked");
    assert!(server.all().is_empty());
    assert_eq!(server.count("POST"), 1);
}

#[test]
fn a_bad_token_is_told_by_the_name_of_its_variable() {
    let server = Server::new();
    let folder = folder();
    let mut command = folder.command(&["--pr", "7", "--token-env", "BOT_TOKEN", "--api-url", &server.url()]);
    ended(command.env("BOT_TOKEN", "ghp_wrong")).says(101, "the token in the environment variable BOT_TOKEN (401)");
    for (token, expected) in [("", "BOT_TOKEN contains no token"), ("a\nb", "has invalid characters")] {
        ended(command.env("BOT_TOKEN", token)).says(2, expected);
    }
    ended(command.env_remove("BOT_TOKEN")).says(2, "BOT_TOKEN contains no token");
    assert!(server.all().is_empty());
}

#[test]
fn a_token_that_can_only_read_is_told_with_what_to_do() {
    let server = Server::new();
    let answer = json!({ "message": format!("Resource not accessible by integration\u{1b}[2J {TOKEN}") });
    server.fault("POST", Fault::Answer(403, vec![], answer));
    let ended = post(&server, &[]);
    ended.says(
        101,
        "is not allowed to comment on the pull request (403): Resource not accessible",
    );
    assert!(
        ended.said.contains("pull-requests: write") && !ended.said.contains('\u{1b}'),
        "{ended:?}"
    );
    assert_eq!(server.count("POST"), 1);
}

#[test]
fn a_rate_limit_is_waited_for_as_long_as_it_says() {
    let limits = [
        (403, vec![("Retry-After", "2".to_owned())]),
        (429, vec![("Retry-After", "2".to_owned())]),
        (
            403,
            vec![
                ("X-RateLimit-Remaining", "0".to_owned()),
                ("X-RateLimit-Reset", server::in_seconds(1)),
            ],
        ),
    ];
    for (status, headers) in limits {
        for method in ["GET", "POST"] {
            let server = Server::new();
            let answer = json!({ "message": "You have exceeded a secondary rate limit." });
            server.fault(method, Fault::Answer(status, headers.clone(), answer));
            let begun = std::time::Instant::now();
            post(&server, &[]).says(0, "commented on #7");
            assert!(begun.elapsed().as_secs() >= 1);
            assert_eq!(server.own(ACTIONS).len(), 1);
        }
    }
}

#[test]
fn a_rate_limit_beyond_the_time_there_is_ends_at_once() {
    let server = Server::new();
    let answer = json!({ "message": "API rate limit exceeded" });
    server.fault(
        "POST",
        Fault::Answer(403, vec![("Retry-After", "3600".to_owned())], answer),
    );
    post(&server, &["--timeout", "1min"]).says(101, "asks to wait 3600 s");
    assert!(server.all().is_empty());
}

#[test]
fn a_server_that_is_broken_twice_is_asked_a_third_time() {
    for method in ["GET", "POST"] {
        let server = Server::new();
        for _ in 0..2 {
            server.fault(method, Fault::Answer(502, vec![], json!({ "message": "Server Error" })));
        }
        post(&server, &[]).says(0, "commented on #7");
        assert_eq!(server.own(ACTIONS).len(), 1);
    }
}

#[test]
fn a_server_that_stays_broken_is_told_in_the_time_there_is() {
    let server = Server::new();
    for _ in 0..9 {
        server.fault("GET", Fault::Answer(503, vec![], json!({})));
    }
    post(&server, &["--timeout", "3s"]).says(
        101,
        "cannot find the user of the token: GitHub answered with status 503",
    );
    let folder = folder();
    let mut command = folder.command(&["--pr", "7", "--api-url", "http://127.0.0.1:9", "--timeout", "2s"]);
    ended(command.env("GITHUB_TOKEN", TOKEN)).says(101, "cannot find the user of the token");
}

#[test]
fn a_connection_cut_while_reading_is_tried_again() {
    for cut in [Fault::CutInBody, Fault::CutBefore] {
        let server = Server::new();
        server.comment(ACTIONS, &format!("{MARKER}\nold"));
        server.fault("GET /user", cut.clone());
        server.fault("GET /repos", cut.clone());
        server.fault("PATCH", cut);
        post(&server, &[]).says(0, "#7");
        assert_eq!(server.own(ACTIONS).len(), 1);
    }
}

#[test]
fn a_connection_cut_while_a_comment_is_made_makes_no_second_one() {
    for (cut, posts) in [(Fault::CutInBody, 1), (Fault::CutAfter, 1), (Fault::CutBefore, 2)] {
        let server = Server::new();
        server.fault("POST", cut);
        post(&server, &[]).says(0, "#7");
        assert_eq!(server.own(ACTIONS).len(), 1);
        assert_eq!(server.count("POST"), posts);
    }
}

#[test]
fn an_app_of_another_name_leaves_one_comment_though_the_connection_was_cut() {
    let server = Server::new();
    server.set_poster(APP);
    server.fault("POST", Fault::CutInBody);
    assert_eq!(post(&server, &[]).code, 0);
    assert_eq!(server.own(APP).len(), 1);
}

#[test]
fn a_redirect_within_the_host_is_followed_and_one_to_another_host_is_not() {
    let server = Server::new();
    server.fault(
        "GET /repos",
        Fault::Answer(
            301,
            vec![("Location", "/repositories/1/issues/7/comments".to_owned())],
            json!({}),
        ),
    );
    post(&server, &[]).says(0, "commented on #7");
    for method in ["GET", "POST"] {
        let (server, other) = (Server::new(), Server::new());
        let to = format!("{}/steal?{TOKEN}", other.url());
        server.fault(method, Fault::Answer(307, vec![("Location", to)], json!({})));
        post(&server, &[]).says(101, "a redirect points to 127.0.0.1");
        assert_eq!(other.count(""), 0);
        assert!(server.all().is_empty());
    }
}

#[test]
fn a_link_to_another_host_is_not_followed() {
    for to in [
        "http://user@127.0.0.1:PORT/next",
        "http://127.0.0.1:PORT/next",
        "file:///etc/passwd",
        "//127.0.0.1:PORT/",
    ] {
        let (server, other) = (Server::new(), Server::new());
        let to = to.replace("PORT", other.url().rsplit(':').next().unwrap());
        let link = vec![("Link", format!("<{to}>; rel=\"next\""))];
        server.fault("GET /repos", Fault::Answer(200, link, json!([])));
        post(&server, &[]).says(101, "a link to the next page points to");
        assert_eq!(other.count(""), 0);
        assert!(server.all().is_empty());
    }
}

fn run_event(pulls: Value) -> Value {
    json!({
        "action": "completed",
        "repository": { "id": 1, "full_name": "tracel/models" },
        "workflow_run": {
            "event": "pull_request", "head_sha": "abc", "head_branch": "wider & deeper",
            "head_repository": { "id": 50, "owner": { "login": "forker" } }, "pull_requests": pulls,
        },
    })
}

fn pull(number: u64, sha: &str, repo: Value) -> Value {
    json!({ "number": number, "head": { "sha": sha, "repo": repo } })
}

#[test]
fn a_workflow_that_follows_another_posts_to_its_pull_request() {
    let server = Server::new();
    let side = |sha: &str, repo: u64| json!({ "sha": sha, "repo": { "id": repo } });
    // A pull request to another repository has the same head.
    let pulls = json!([
        { "number": 3, "head": side("abc", 50), "base": side("d", 2) },
        { "number": 9, "head": side("abc", 50), "base": side("d", 1) },
    ]);
    folder()
        .on("workflow_run", &run_event(pulls), &server, &[])
        .says(0, "commented on #9");
    assert_eq!(server.count("GET /repos/tracel/models/pulls"), 0);
    // A fork has the commit of somebody else's pull request.
    let victim = json!([{ "number": 9, "head": side("abc", 1), "base": side("d", 1) }]);
    server.set_pulls(&[]);
    folder()
        .on("workflow_run", &run_event(victim.clone()), &server, &[])
        .says(0, "nothing posted");
    let mut deleted = run_event(victim);
    deleted["workflow_run"]["head_repository"] = Value::Null;
    folder()
        .on("workflow_run", &deleted, &server, &[])
        .says(2, "a branch or repository that no longer exists");
    assert_eq!(server.all().len(), 1);
}

#[test]
fn a_pull_request_of_a_fork_is_found_by_head_commit_and_repository() {
    let server = Server::new();
    server.set_pulls(&[
        pull(11, "newer", json!({ "id": 50 })),
        pull(12, "abc", Value::Null),
        pull(13, "abc", json!({ "id": 51 })),
        pull(14, "abc", json!({ "id": 50 })),
    ]);
    folder()
        .on("workflow_run", &run_event(json!([])), &server, &[])
        .says(0, "commented on #14");
    assert_eq!(
        server.count("head=forker:wider%20%26%20deeper") + server.count("head=forker%3Awider%20%26%20deeper"),
        1
    );
    // The request has the branch as it is, although messages show it escaped.
    let mut invisible = run_event(json!([]));
    invisible["workflow_run"]["head_branch"] = json!("fix-❤\u{fe0f}");
    folder().on("workflow_run", &invisible, &server, &[]).says(0, "#14");
    assert_eq!(server.count("fix-%E2%9D%A4%EF%B8%8F"), 1);
}

#[test]
fn a_pull_request_that_moved_on_gets_nothing_and_two_of_one_head_are_told() {
    let server = Server::new();
    let repo = || json!({ "id": 50 });
    server.set_pulls(&[pull(11, "newer", repo())]);
    folder()
        .on("workflow_run", &run_event(json!([])), &server, &[])
        .says(0, "nothing posted");
    server.set_pulls(&[pull(11, "abc", repo()), pull(12, "abc", repo())]);
    folder()
        .on("workflow_run", &run_event(json!([])), &server, &[])
        .says(2, "#11, #12");
    assert!(server.all().is_empty());
}

#[test]
fn without_a_usable_event_nothing_is_posted() {
    let server = Server::new();
    let mut push = run_event(json!([]));
    push["workflow_run"]["event"] = json!("push");
    let events = [
        ("push", json!({}), "the event push has no pull request"),
        (
            "pull_request_target",
            json!({ "pull_request": { "number": 7 } }),
            "has no pull request to comment on",
        ),
        (
            "pull_request",
            json!({ "pull_request": { "number": "7" } }),
            "is not a valid pull_request event",
        ),
        ("workflow_run", json!([]), "is not a valid workflow_run event"),
        ("workflow_run", push, "was for the event push"),
    ];
    for (name, event, expected) in events {
        folder().on(name, &event, &server, &[]).says(2, expected);
    }
    let folder = folder();
    let mut command = folder.command(&[]);
    command.env("GITHUB_TOKEN", TOKEN).env("GITHUB_API_URL", server.url());
    ended(&mut command).says(2, "GITHUB_EVENT_NAME is not set");
    command.env("GITHUB_EVENT_NAME", "pull_request");
    ended(&mut command).says(2, "GITHUB_EVENT_PATH is not set");
    ended(command.env("GITHUB_EVENT_PATH", "nowhere.json")).says(101, "nowhere.json cannot be read");
    assert_eq!(server.count(""), 0);
}

#[test]
fn by_hand_a_pull_request_is_named() {
    let server = Server::new();
    let folder = folder();
    let mut command = folder.command(&["--repo", "a/b", "--pr", "5", "--api-url", &server.url()]);
    ended(command.env("GITHUB_TOKEN", TOKEN)).says(0, "commented on #5");
    assert_eq!(server.count("POST /repos/a/b/issues/5/comments"), 1);
    for wrong in [
        &["--repo", "a/b"][..],
        &["--repo", "../x", "--pr", "5"],
        &["--pr", "0"],
        &["--pr", "5", "--repo", "a/b?c"],
    ] {
        assert_eq!(
            ended(folder.command(wrong).env("GITHUB_TOKEN", TOKEN)).code,
            2,
            "{wrong:?}"
        );
    }
}

#[test]
fn a_report_that_is_none_posts_nothing() {
    let server = Server::new();
    let event = json!({ "pull_request": { "number": 7 } });
    let folder = folder();
    let mut negative = report();
    negative["runs"] = json!([{ "model": "m" }]);
    let huge = report().to_string().replace("\"version\":2", "\"version\":2e999");
    let mut newer = report();
    newer["version"] = json!(3);
    let texts = [
        "hello".to_owned(),
        String::new(),
        negative.to_string(),
        huge,
        newer.to_string(),
        "[".repeat(1 << 20),
    ];
    for text in texts {
        std::fs::write(folder.0.path().join("report.json"), text).unwrap();
        assert_eq!(folder.on("pull_request", &event, &server, &[]).code, 2);
    }
    let file = std::fs::File::create(folder.0.path().join("report.json")).unwrap();
    file.set_len(100 << 20).unwrap();
    folder
        .on("pull_request", &event, &server, &[])
        .says(2, "larger than 64 MiB");
    assert_eq!(server.count(""), 0);
}

#[test]
fn on_change_only_says_nothing_where_there_is_nothing_to_say() {
    let server = Server::new();
    post(&server, &["--on-change-only"]).says(0, "nothing to report on #7");
    assert!(server.all().is_empty());
    // An old comment is updated; a comment that is up to date stays.
    server.comment(ACTIONS, &format!("{MARKER}\nover budget"));
    post(&server, &["--on-change-only"]).says(0, "updated");
    post(&server, &["--on-change-only"]).says(0, "is up to date");
    assert_eq!(server.count("PATCH"), 1);
    // A failed check is posted even without changes.
    let (server, folder) = (Server::new(), folder());
    let mut failed = report();
    failed["status"] = json!("fail");
    folder.write("report.json", &failed);
    let event = json!({ "pull_request": { "number": 7 } });
    folder
        .on("pull_request", &event, &server, &["--on-change-only"])
        .says(0, "commented on #7");
}

#[test]
fn a_dry_run_asks_nobody_and_needs_no_token() {
    let server = Server::new();
    let ended_of = |arguments: &[&str]| ended(folder().command(arguments).env("GITHUB_API_URL", server.url()));
    let shown = ended_of(&["--dry-run", "--pr", "7"]);
    shown.says(0, "would be posted to pull request #7 of tracel/models");
    assert!(shown.said.starts_with(MARKER), "{shown:?}");
    ended_of(&["--dry-run"]).says(0, "would not be posted");
    let mut of_fork = run_event(json!([]));
    of_fork["workflow_run"]["head_branch"] = json!("##[error]a\u{202e}");
    folder().on("workflow_run", &of_fork, &server, &["--dry-run"]).says(
        0,
        "with the head branch `## [error]a\u{fffd}` of `forker` at commit `abc`",
    );
    ended_of(&["--dry-run", "--pr", "7", "--on-change-only"]).says(0, "nothing to report");
    assert_eq!(server.count(""), 0);
}

#[test]
fn an_api_that_would_have_the_token_unencrypted_is_refused() {
    for url in [
        "http://github.example/api/v3",
        "ftp://a",
        "nonsense",
        "https://user@evil.example",
        "https://a/?x=1",
    ] {
        let folder = folder();
        let mut command = folder.command(&["--pr", "7", "--api-url", url]);
        ended(command.env("GITHUB_TOKEN", TOKEN)).says(2, "is not a valid API address");
    }
}
