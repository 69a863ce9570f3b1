//! Sends requests, a few times where that is safe, and only to the host that the token is for.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{HeaderMap, Response, Uri};
use ureq::{Agent, Body, RequestBuilder};

use super::GithubError;
use super::event::harmless;

/// Tries of one request.
const TRIES: u32 = 5;
/// Before the second try; twice as long before each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// For one try.
const ONE_TRY: Duration = Duration::from_secs(30);
/// Redirects of one request.
const MOST_REDIRECTS: u32 = 5;
/// A page of a hundred comments of 65,536 characters fits.
const MOST_BYTES: u64 = 64 << 20;
/// Pages of one list: GitHub allows 2,500 comments on a pull request, which are 25.
const MOST_PAGES: u32 = 300;
/// Entries of a page, as many as GitHub gives.
pub(super) const PER_PAGE: &str = "100";

/// A token, and the environment variable that it is from. Nothing shows it: there is no `Debug` and no `Display`.
pub struct Token {
    secret: String,
    variable: String,
}

impl Token {
    /// That of an environment variable.
    ///
    /// # Errors
    /// The variable is not set, or what is in it can be no token.
    pub fn from_environment(variable: &str) -> Result<Self, GithubError> {
        let secret = std::env::var_os(variable).unwrap_or_default();
        let secret = secret.to_str().map(str::trim);
        let secret = secret.ok_or_else(|| GithubError::TokenCharacters(variable.to_owned()))?;
        if secret.is_empty() {
            return Err(GithubError::NoToken(variable.to_owned()));
        }
        if !secret.chars().all(|character| character.is_ascii_graphic()) {
            return Err(GithubError::TokenCharacters(variable.to_owned()));
        }
        Ok(Self {
            secret: secret.to_owned(),
            variable: variable.to_owned(),
        })
    }
}

/// What to do.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    /// Read.
    Get(&'a [(&'a str, &'a str)]),
    /// Make: not to be done twice, so that it is tried once, unless GitHub says that it did not do it.
    Post(&'a Value),
    /// Change.
    Patch(&'a Value),
    /// Remove.
    Delete,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    body: Vec<u8>,
    next: Option<String>,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What the server says is wrong.
    pub(super) fn message(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        value["message"].as_str().unwrap_or("(it does not say why)").to_owned()
    }

    pub(super) fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }
}

/// Why a request has no answer.
pub(super) enum Failure {
    /// Nobody knows whether it was done: the connection broke, or the server did.
    Uncertain(String),
    /// It was not.
    Certain(GithubError),
}

impl From<GithubError> for Failure {
    fn from(error: GithubError) -> Self {
        Self::Certain(error)
    }
}

/// A connection to one API.
pub struct Client {
    agent: Agent,
    /// Without a slash at its end.
    base: String,
    origin: Origin,
    token: Token,
    until: Instant,
}

/// Scheme, host and port.
type Origin = (String, String, u16);

fn origin(uri: &Uri) -> Option<Origin> {
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri.port_u16().or(match scheme.as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    })?;
    // What stands before an `@` is no host, and a way to make one look like another.
    let authority = uri.authority()?.as_str();
    let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
    (!authority.contains('@')).then_some((scheme, host, port))
}

impl Client {
    /// For the API at an address, within a time.
    ///
    /// # Errors
    /// The address is none, or would send the token unencrypted through a network.
    pub fn new(api_url: &str, token: Token, within: Duration) -> Result<Self, GithubError> {
        let base = api_url.trim_end_matches('/');
        let wrong = |why| GithubError::ApiUrl {
            url: harmless(api_url),
            why,
        };
        let uri: Uri = base.parse().map_err(|_| wrong("it is no URL"))?;
        let origin = origin(&uri).ok_or_else(|| wrong("it is no https:// URL of a host"))?;
        if uri.query().is_some() {
            return Err(wrong("it has a query"));
        }
        let is_here = matches!(origin.1.as_str(), "localhost" | "127.0.0.1" | "[::1]");
        if origin.0 != "https" && !is_here {
            return Err(wrong("only https keeps the token secret"));
        }
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // They are followed here, to the same host alone.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .user_agent(concat!("cargo-vram/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self {
            agent,
            base: base.to_owned(),
            origin,
            token,
            until: Instant::now() + within,
        })
    }

    /// An address of the API.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A server's text in a line of a message. It has seen the token, and may say it.
    pub(super) fn shown(&self, text: &str) -> String {
        harmless(&text.replace(&self.token.secret, "***"))
    }

    /// An answer that is an error.
    pub(super) fn refusal(&self, what: &'static str, answer: &Answer) -> GithubError {
        let status = answer.status;
        let message = self.shown(&answer.message());
        match status {
            401 => GithubError::BadToken(self.token.variable.clone()),
            403 => GithubError::Forbidden {
                variable: self.token.variable.clone(),
                what,
                status,
                message,
            },
            _ => GithubError::Refused { what, status, message },
        }
    }

    /// Asks, and again where the answer is that this was no time for it, or where there is none and to ask twice does no
    /// harm. What comes back is no limit on how often may be asked, no redirect, and no error of the server.
    pub(super) fn ask(&self, what: &'static str, ask: Ask<'_>, url: &str) -> Result<Answer, Failure> {
        let mut tried = 0;
        loop {
            tried += 1;
            let why = match self.follow(ask, url)? {
                Tried::Answer(answer) => return Ok(answer),
                Tried::Later { wait, .. } if tried < TRIES => {
                    self.wait(wait.unwrap_or_else(|| pause(tried)))?;
                    continue;
                }
                Tried::Later { why, .. } | Tried::Broken(why) => why,
            };
            if matches!(ask, Ask::Post(_)) {
                return Err(Failure::Uncertain(why));
            }
            if tried >= TRIES || !self.pause(tried) {
                return Err(GithubError::Unreachable { what, why }.into());
            }
        }
    }

    /// Every page of a list.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, GithubError> {
        let mut all = Vec::new();
        let mut url = self.url(path);
        let mut query = query;
        for _ in 0..MOST_PAGES {
            let answer = self.ask(what, Ask::Get(query), &url).map_err(|failure| match failure {
                Failure::Certain(error) => error,
                Failure::Uncertain(why) => GithubError::Unreachable { what, why },
            })?;
            if !answer.is_success() {
                return Err(self.refusal(what, &answer));
            }
            let page: Vec<T> = answer.json().map_err(|error| GithubError::Unreachable {
                what,
                why: format!(
                    "the answer is not what GitHub documents: {}",
                    self.shown(&error.to_string())
                ),
            })?;
            all.extend(page);
            let Some(next) = answer.next else {
                return Ok(all);
            };
            url = self.same_host("a link to the next page", &url, &next)?;
            // The link has them.
            query = &[];
        }
        Err(GithubError::Endless(what))
    }

    /// Waits as long as GitHub asks for.
    fn wait(&self, time: Duration) -> Result<(), GithubError> {
        let left = self.left();
        if time > left {
            return Err(GithubError::RateLimit {
                wait: time.as_secs(),
                left: left.as_secs(),
            });
        }
        thread::sleep(time);
        Ok(())
    }

    /// Waits before another try, where there is time for one.
    pub(super) fn pause(&self, tried: u32) -> bool {
        let time = pause(tried);
        let is_time = time < self.left();
        if is_time {
            thread::sleep(time);
        }
        is_time
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// An address that a server gave, where it is one of the API's own host.
    fn same_host(&self, what: &'static str, from: &str, to: &str) -> Result<String, GithubError> {
        let absolute = match to.starts_with('/') && !to.starts_with("//") {
            true => {
                let (scheme, host, port) = &self.origin;
                format!("{scheme}://{host}:{port}{to}")
            }
            false => to.to_owned(),
        };
        let uri = absolute.parse::<Uri>().ok();
        if uri.as_ref().and_then(origin).as_ref() == Some(&self.origin) {
            return Ok(absolute);
        }
        let host = |url: &str| {
            let uri = url.parse::<Uri>().ok();
            let host = uri.as_ref().and_then(Uri::host).unwrap_or("nowhere");
            self.shown(host)
        };
        Err(GithubError::Elsewhere {
            what,
            to: host(&absolute),
            from: host(from),
        })
    }

    /// One try, redirects included: GitHub answers with them where a repository was renamed.
    fn follow(&self, ask: Ask<'_>, url: &str) -> Result<Tried, GithubError> {
        let mut url = url.to_owned();
        let mut ask = ask;
        for _ in 0..=MOST_REDIRECTS {
            let response = match self.send(ask, &url) {
                Ok(response) => response,
                Err(error) => return Ok(Tried::Broken(self.shown(&error.to_string()))),
            };
            let status = response.status().as_u16();
            if let (301 | 302 | 307 | 308, Some(to)) = (status, header(response.headers(), "location")) {
                url = self.same_host("a redirect", &url, to)?;
                if let Ask::Get(_) = ask {
                    ask = Ask::Get(&[]);
                }
                continue;
            }
            return Ok(self.read(response));
        }
        Ok(Tried::Broken("it leads from one redirect to the next".to_owned()))
    }

    fn read(&self, mut response: Response<Body>) -> Tried {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = match response.body_mut().with_config().limit(MOST_BYTES).read_to_vec() {
            Ok(body) => body,
            Err(error) => return Tried::Broken(self.shown(&error.to_string())),
        };
        let answer = Answer {
            status,
            body,
            next: next_page(&headers),
        };
        if is_rate_limited(status, &headers, &answer) {
            return Tried::Later {
                wait: asked_to_wait(&headers),
                why: "it limits how often it may be asked".to_owned(),
            };
        }
        if status >= 500 {
            return Tried::Broken(format!("GitHub answers {status}"));
        }
        Tried::Answer(answer)
    }

    fn send(&self, ask: Ask<'_>, url: &str) -> Result<Response<Body>, ureq::Error> {
        match ask {
            Ask::Get(query) => self
                .with_headers(self.agent.get(url).query_pairs(query.iter().copied()))
                .call(),
            Ask::Delete => self.with_headers(self.agent.delete(url)).call(),
            Ask::Post(body) => self.with_headers(self.agent.post(url)).send(body.to_string()),
            Ask::Patch(body) => self.with_headers(self.agent.patch(url)).send(body.to_string()),
        }
    }

    fn with_headers<Any>(&self, request: RequestBuilder<Any>) -> RequestBuilder<Any> {
        let time = self.left().clamp(Duration::from_millis(100), ONE_TRY);
        request
            .config()
            .timeout_global(Some(time))
            .build()
            .header("Accept", "application/vnd.github+json")
            .header("X-GitHub-Api-Version", "2022-11-28")
            .header("Content-Type", "application/json")
            .header("Authorization", format!("Bearer {}", self.token.secret))
    }
}

/// How one try ended.
enum Tried {
    Answer(Answer),
    /// GitHub did nothing yet, and says after what time it may.
    Later {
        wait: Option<Duration>,
        why: String,
    },
    /// No answer, or one of a server that is broken.
    Broken(String),
}

/// 1 s, 2 s, 4 s, …
fn pause(tried: u32) -> Duration {
    FIRST_PAUSE * 2_u32.saturating_pow(tried.saturating_sub(1)).min(64)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A 403 is a limit only where it says so: most are about permissions, and waiting does not help.
fn is_rate_limited(status: u16, headers: &HeaderMap, answer: &Answer) -> bool {
    let is_told = header(headers, "retry-after").is_some()
        || header(headers, "x-ratelimit-remaining") == Some("0")
        || answer.message().to_ascii_lowercase().contains("rate limit");
    status == 429 || (status == 403 && is_told)
}

/// `Retry-After` in seconds; else the moment at which the limit is lifted, where it is used up.
fn asked_to_wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| header(headers, name).and_then(|value| value.trim().parse::<u64>().ok());
    if let Some(seconds) = number("retry-after") {
        return Some(Duration::from_secs(seconds));
    }
    let reset = number("x-ratelimit-reset").filter(|_| header(headers, "x-ratelimit-remaining") == Some("0"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(Duration::from_secs(reset.saturating_sub(now) + 1))
}

/// The address of `<…>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = header(headers, "link")?;
    let is_next = |parameter: &str| matches!(parameter.trim(), "rel=\"next\"" | "rel=next");
    links.split(',').find_map(|link| {
        let (address, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters.split(';').any(is_next).then(|| address.to_owned())
    })
}
