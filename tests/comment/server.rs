//! A server with the part of GitHub's REST API that `comment` needs, which can also make mistakes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "ghs_16C7e42F292c6912E7710c838347Ae178B4a";

/// The id, login and type of a user.
pub(crate) type User = (u64, &'static str, &'static str);
pub(crate) const ACTIONS: User = (41_898_282, "github-actions[bot]", "Bot");
pub(crate) const APP: User = (5000, "our-app[bot]", "Bot");
pub(crate) const PERSON: User = (600, "maintainer", "User");
pub(crate) const STRANGER: User = (666, "stranger", "User");

/// The mistake that the server makes with one request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The server does nothing, and sends this answer.
    Answer(u16, Vec<(&'static str, String)>, Value),
    /// The server does nothing, and closes the connection without an answer.
    CutBefore,
    /// The server handles the request, and closes the connection without an answer.
    CutAfter,
    /// The server handles the request, and sends only half of the answer's body.
    CutInBody,
    /// The server deletes the comment before it handles the request.
    DeletedBefore,
}

struct Comment {
    id: u64,
    user: User,
    body: String,
}

#[derive(Default)]
struct State {
    comments: Vec<Comment>,
    last_id: u64,
    requests: Vec<String>,
    faults: Vec<(String, Fault)>,
    pulls: Vec<Value>,
    /// The user in the answer to `GET /user`; `None` for apps, which have no user.
    user: Option<User>,
    poster: Option<User>,
    barrier: Option<Arc<Barrier>>,
}

/// A server in a thread of the test.
#[derive(Clone)]
pub(crate) struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
}

pub(crate) fn in_seconds(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_secs() + seconds).to_string()
}

/// The status, headers and body of an answer.
type Answer = (u16, Vec<(&'static str, String)>, Value);

impl Server {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::default(),
        };
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = serving.clone();
                // It is not a mistake of the server if a client closes the connection.
                thread::spawn(move || server.serve(stream).unwrap_or_default());
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn comment(&self, user: User, body: &str) {
        let mut state = self.state.lock().unwrap();
        state.make(user, body);
    }

    /// Makes a mistake with the next request that starts with this text.
    pub(crate) fn fault(&self, request: &str, fault: Fault) {
        self.state.lock().unwrap().faults.push((request.to_owned(), fault));
    }

    pub(crate) fn set_user(&self, user: Option<User>) {
        let mut state = self.state.lock().unwrap();
        (state.user, state.poster) = (user, user);
    }

    pub(crate) fn set_poster(&self, user: User) {
        self.state.lock().unwrap().poster = Some(user);
    }

    pub(crate) fn set_pulls(&self, pulls: &[Value]) {
        self.state.lock().unwrap().pulls = pulls.to_vec();
    }

    pub(crate) fn let_posts_wait_for(&self, count: usize) {
        self.state.lock().unwrap().barrier = Some(Arc::new(Barrier::new(count)));
    }

    /// The bodies of a user's comments.
    pub(crate) fn own(&self, user: User) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let own = state.comments.iter().filter(|comment| comment.user == user);
        own.map(|comment| comment.body.clone()).collect()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.comments.iter().map(|comment| comment.body.clone()).collect()
    }

    /// The number of requests with this text in them.
    pub(crate) fn count(&self, part: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|request| request.contains(part)).count()
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let (mut length, mut token) = (0, String::new());
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(':') else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "authorization" => token = value.trim().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut parts = first.split_whitespace();
        let (Some(method), Some(target)) = (parts.next(), parts.next()) else {
            return Ok(());
        };
        let (fault, barrier) = self.begin(&format!("{method} {target}"));
        if let (Some(barrier), "POST") = (barrier, method) {
            barrier.wait();
        }
        let answer = || match token == format!("Bearer {TOKEN}") {
            true => self.state.lock().unwrap().answer(self.port, method, target, &body),
            false => (401, vec![], json!({ "message": "Bad credentials" })),
        };
        match fault {
            None => write(&stream, &answer(), false),
            Some(Fault::Answer(status, headers, body)) => write(&stream, &(status, headers, body), false),
            Some(Fault::CutBefore) => Ok(()),
            Some(Fault::CutAfter) => {
                answer();
                Ok(())
            }
            Some(Fault::CutInBody) => write(&stream, &answer(), true),
            Some(Fault::DeletedBefore) => {
                self.state.lock().unwrap().comments.clear();
                write(&stream, &answer(), false)
            }
        }
    }

    fn begin(&self, request: &str) -> (Option<Fault>, Option<Arc<Barrier>>) {
        let mut state = self.state.lock().unwrap();
        state.requests.push(request.to_owned());
        let at = state
            .faults
            .iter()
            .position(|(start, _)| request.starts_with(start.as_str()));
        let fault = at.map(|at| state.faults.remove(at).1);
        (fault, state.barrier.clone())
    }
}

fn write(mut stream: &TcpStream, (status, headers, body): &Answer, only_half: bool) -> std::io::Result<()> {
    let body = match status {
        204 => String::new(),
        _ => body.to_string(),
    };
    let mut head = format!("HTTP/1.1 {status} Status\r\nConnection: close\r\nContent-Type: application/json\r\n");
    if *status != 204 {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let sent = if only_half { &body[..body.len() / 2] } else { &body };
    stream.write_all(format!("{head}\r\n{sent}").as_bytes())
}

impl State {
    fn make(&mut self, user: User, body: &str) -> u64 {
        self.last_id += 1;
        self.comments.push(Comment {
            id: self.last_id,
            user,
            body: body.to_owned(),
        });
        self.last_id
    }

    fn answer(&mut self, port: u16, method: &str, target: &str, body: &Value) -> Answer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(key, value)| (key == name).then_some(value))
        };
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let no = |status: u16, message: &str| {
            (
                status,
                vec![],
                json!({ "message": message, "status": status.to_string() }),
            )
        };
        let text = body["body"].as_str().unwrap_or_default();
        match (method, &parts[..]) {
            ("GET", ["user"]) => match self.user {
                Some(user) => (200, vec![], user_json(user)),
                None => no(403, "Resource not accessible by integration"),
            },
            ("GET", ["repos", _, _, "pulls"]) => (200, vec![], json!(self.pulls)),
            ("GET", ["repos", _, _, "issues", _, "comments"] | ["repositories", _, "issues", _, "comments"]) => {
                let number = |name, otherwise| query(name).map_or(otherwise, |value| value.parse().unwrap());
                let (size, page): (usize, usize) = (number("per_page", 30), number("page", 1));
                let pages = self.comments.len().div_ceil(size);
                let shown = self.comments.iter().skip((page - 1) * size).take(size);
                let shown: Vec<_> = shown.map(comment_json).collect();
                let link = |page, rel| {
                    format!(
                        "<http://127.0.0.1:{port}/repositories/1/issues/7/comments?per_page={size}&page={page}>; rel=\"{rel}\""
                    )
                };
                let links = match page < pages {
                    true => vec![(
                        "Link",
                        [link(1, "first"), link(page + 1, "next"), link(pages, "last")].join(", "),
                    )],
                    false => vec![],
                };
                (200, links, json!(shown))
            }
            ("POST", ["repos", _, _, "issues", _, "comments"]) => {
                self.make(self.poster.unwrap_or(ACTIONS), text);
                (201, vec![], comment_json(&self.comments[self.comments.len() - 1]))
            }
            ("PATCH" | "DELETE", ["repos", _, _, "issues", "comments", id]) => {
                let id: u64 = id.parse().unwrap();
                let Some(at) = self.comments.iter().position(|comment| comment.id == id) else {
                    return no(404, "Not Found");
                };
                if method == "DELETE" {
                    self.comments.remove(at);
                    return (204, vec![], Value::Null);
                }
                text.clone_into(&mut self.comments[at].body);
                (200, vec![], comment_json(&self.comments[at]))
            }
            _ => no(404, "Not Found"),
        }
    }
}

fn user_json((id, login, kind): User) -> Value {
    json!({ "id": id, "login": login, "type": kind })
}

fn comment_json(comment: &Comment) -> Value {
    json!({
        "id": comment.id, "user": user_json(comment.user), "body": comment.body,
        "html_url": format!("https://github.com/tracel/models/pull/7#issuecomment-{}", comment.id),
    })
}
