//! Sends requests to GitHub's API: repeats them if that is safe, and sends the token only to the API's host.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{HeaderMap, Response, Uri};
use ureq::{Agent, Body, RequestBuilder};

use super::GithubError;
use crate::untrusted::named;

/// The most tries per request.
const TRIES: u32 = 5;
/// The pause before the second try. It doubles before each further try.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The timeout of one try.
const ONE_TRY: Duration = Duration::from_secs(30);
/// The most redirects per request.
const MOST_REDIRECTS: u32 = 5;
/// The largest answer in bytes. A page of 100 comments with 65,536 characters each fits.
const MOST_BYTES: u64 = 64 << 20;
/// The most pages per list. GitHub allows 2,500 comments per pull request, which are 25 pages.
const MOST_PAGES: u32 = 300;
/// The number of entries per page: GitHub's maximum.
pub(super) const PER_PAGE: &str = "100";

/// A token, with the name of its environment variable. It has no `Debug` and no `Display`, so that nothing can print
/// it.
pub struct Token {
    secret: String,
    variable: String,
}

impl Token {
    /// Reads the token from an environment variable.
    ///
    /// # Errors
    /// The variable is not set or empty, or has characters that no token has.
    pub fn from_environment(variable: &str) -> Result<Self, GithubError> {
        let secret = std::env::var_os(variable).unwrap_or_default();
        let secret = secret.to_str().map(str::trim);
        let secret = secret.ok_or_else(|| GithubError::TokenCharacters(variable.to_owned()))?;
        if secret.is_empty() {
            return Err(GithubError::NoToken(variable.to_owned()));
        }
        // A header cannot carry other characters. Checked here,
        // the error names the variable and not the token.
        if !secret.chars().all(|character| character.is_ascii_graphic()) {
            return Err(GithubError::TokenCharacters(variable.to_owned()));
        }
        Ok(Self {
            secret: secret.to_owned(),
            variable: variable.to_owned(),
        })
    }
}

/// The method of a request, with its query or body.
#[derive(Clone, Copy)]
pub(super) enum ApiRequest<'a> {
    /// Reads, with query parameters.
    Get(&'a [(&'a str, &'a str)]),
    /// Creates. It is repeated only if GitHub refused it because of the rate limit: otherwise it could create twice.
    Post(&'a Value),
    /// Changes.
    Patch(&'a Value),
    /// Removes.
    Delete,
}

/// An answer of the server.
pub(super) struct ApiAnswer {
    pub(super) status: u16,
    body: Vec<u8>,
    next: Option<String>,
}

impl ApiAnswer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the server's error message.
    pub(super) fn message(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        value["message"].as_str().unwrap_or("(no reason given)").to_owned()
    }

    pub(super) fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }
}

/// The reason why a request has no answer.
pub(super) enum RequestFailure {
    /// The connection or the server failed, so it is unknown whether the request was executed.
    Uncertain(String),
    /// The request was not executed.
    Certain(GithubError),
}

impl From<GithubError> for RequestFailure {
    fn from(error: GithubError) -> Self {
        Self::Certain(error)
    }
}

/// A client for one API, with an overall time limit.
pub struct Client {
    agent: Agent,
    /// The address of the API, without a slash at its end.
    base: String,
    origin: ApiOrigin,
    token: Token,
    until: Instant,
}

/// Scheme, host and port of an address.
type ApiOrigin = (String, String, u16);

fn origin(uri: &Uri) -> Option<ApiOrigin> {
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    // `https://host` and `https://host:443` are the same origin.
    let port = uri.port_u16().or(match scheme.as_str() {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    })?;
    // Refuse user information before an `@`: it can make another host look like the API's.
    let authority = uri.authority()?.as_str();
    let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
    (!authority.contains('@')).then_some((scheme, host, port))
}

impl Client {
    /// Makes a client for the API at `api_url`. All its requests together may take the time `within`.
    ///
    /// # Errors
    /// The address is not valid, or would send the token unencrypted through a network.
    pub fn new(api_url: &str, token: Token, within: Duration) -> Result<Self, GithubError> {
        let base = api_url.trim_end_matches('/');
        let wrong = |why| GithubError::ApiUrl {
            url: named(api_url),
            why,
        };
        let uri: Uri = base.parse().map_err(|_| wrong("it is not a URL"))?;
        let origin = origin(&uri).ok_or_else(|| wrong("it is not an https:// URL with a host"))?;
        // Paths are appended to the address. They would become part of the query.
        if uri.query().is_some() {
            return Err(wrong("it has a query"));
        }
        // A request to this machine does not go through a network.
        let is_here = matches!(origin.1.as_str(), "localhost" | "127.0.0.1" | "[::1]");
        if origin.0 != "https" && !is_here {
            return Err(wrong("only https keeps the token secret"));
        }
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            // The body of an error answer has GitHub's reason.
            .http_status_as_error(false)
            // `follow` follows redirects, and only to the same host.
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

    /// Returns the address of a path of the API.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Makes a server's text safe to show in one line. Removes the token, because the server knows it and may repeat
    /// it.
    pub(super) fn shown(&self, text: &str) -> String {
        named(&text.replace(&self.token.secret, "***"))
    }

    /// Converts an answer with an error status into an error.
    pub(super) fn refusal(&self, what: &'static str, answer: &ApiAnswer) -> GithubError {
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

    /// Sends a request and returns the answer, whatever its status below 500.
    ///
    /// Follows redirects. Waits and repeats the request if GitHub limits the request rate. Also repeats it if there is
    /// no answer or a server error, but not a `Post`, which could create twice.
    pub(super) fn ask(&self, what: &'static str, ask: ApiRequest<'_>, url: &str) -> Result<ApiAnswer, RequestFailure> {
        let mut tried = 0;
        loop {
            tried += 1;
            let why = match self.follow(ask, url)? {
                RequestAttempt::Answer(answer) => return Ok(answer),
                // GitHub did not execute the request, so that even a `Post` may be repeated.
                RequestAttempt::Later { wait, .. } if tried < TRIES => {
                    self.wait(wait.unwrap_or_else(|| pause(tried)))?;
                    continue;
                }
                RequestAttempt::Later { why, .. } | RequestAttempt::Broken(why) => why,
            };
            if matches!(ask, ApiRequest::Post(_)) {
                return Err(RequestFailure::Uncertain(why));
            }
            if tried >= TRIES || !self.pause(tried) {
                return Err(GithubError::Unreachable { what, why }.into());
            }
        }
    }

    /// Reads all pages of a list.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, GithubError> {
        let mut all = Vec::new();
        let mut url = self.url(path);
        let mut query = query;
        // A wrong server could link its pages in a circle.
        for _ in 0..MOST_PAGES {
            let answer = self
                .ask(what, ApiRequest::Get(query), &url)
                .map_err(|failure| match failure {
                    RequestFailure::Certain(error) => error,
                    RequestFailure::Uncertain(why) => GithubError::Unreachable { what, why },
                })?;
            if !answer.is_success() {
                return Err(self.refusal(what, &answer));
            }
            let page: Vec<T> = answer.json().map_err(|error| GithubError::Unreachable {
                what,
                why: format!(
                    "GitHub's answer has an unexpected format: {}",
                    self.shown(&error.to_string())
                ),
            })?;
            all.extend(page);
            let Some(next) = answer.next else {
                return Ok(all);
            };
            // The server chose this address, and the next request carries the token.
            url = self.same_host("a link to the next page", &url, &next)?;
            // The link to the next page contains the query.
            query = &[];
        }
        Err(GithubError::Endless(what))
    }

    /// Waits for the time that GitHub asks for. Fails if less time is left.
    fn wait(&self, time: Duration) -> Result<(), GithubError> {
        let left = self.left();
        // Sleeping first would use up the whole time limit for the same failure.
        if time > left {
            return Err(GithubError::RateLimit {
                wait: time.as_secs(),
                left: left.as_secs(),
            });
        }
        thread::sleep(time);
        Ok(())
    }

    /// Waits before the next try. Returns false if there is no time left for it.
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

    /// Returns the address that a server gave. Fails if it is not on the API's host.
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

    /// Sends a request once and follows redirects: GitHub redirects if a repository was renamed.
    fn follow(&self, ask: ApiRequest<'_>, url: &str) -> Result<RequestAttempt, GithubError> {
        let mut url = url.to_owned();
        let mut ask = ask;
        for _ in 0..=MOST_REDIRECTS {
            let response = match self.send(ask, &url) {
                Ok(response) => response,
                Err(error) => return Ok(RequestAttempt::Broken(self.shown(&error.to_string()))),
            };
            let status = response.status().as_u16();
            if let (301 | 302 | 307 | 308, Some(to)) = (status, header(response.headers(), "location")) {
                url = self.same_host("a redirect", &url, to)?;
                // The new address has the query already.
                if let ApiRequest::Get(_) = ask {
                    ask = ApiRequest::Get(&[]);
                }
                continue;
            }
            return Ok(self.read(response));
        }
        Ok(RequestAttempt::Broken("too many redirects".to_owned()))
    }

    fn read(&self, mut response: Response<Body>) -> RequestAttempt {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        // A wrong server must not fill the memory.
        let body = match response.body_mut().with_config().limit(MOST_BYTES).read_to_vec() {
            Ok(body) => body,
            Err(error) => return RequestAttempt::Broken(self.shown(&error.to_string())),
        };
        let answer = ApiAnswer {
            status,
            body,
            next: next_page(&headers),
        };
        if is_rate_limited(status, &headers, &answer) {
            return RequestAttempt::Later {
                wait: asked_to_wait(&headers),
                why: "GitHub limits the request rate".to_owned(),
            };
        }
        if status >= 500 {
            return RequestAttempt::Broken(format!("GitHub answered with status {status}"));
        }
        RequestAttempt::Answer(answer)
    }

    fn send(&self, ask: ApiRequest<'_>, url: &str) -> Result<Response<Body>, ureq::Error> {
        match ask {
            ApiRequest::Get(query) => self
                .with_headers(self.agent.get(url).query_pairs(query.iter().copied()))
                .call(),
            ApiRequest::Delete => self.with_headers(self.agent.delete(url)).call(),
            ApiRequest::Post(body) => self.with_headers(self.agent.post(url)).send(body.to_string()),
            ApiRequest::Patch(body) => self.with_headers(self.agent.patch(url)).send(body.to_string()),
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

/// The result of one try.
enum RequestAttempt {
    Answer(ApiAnswer),
    /// GitHub refused the request because of the rate limit, and may say how long to wait.
    Later {
        wait: Option<Duration>,
        why: String,
    },
    /// There was no answer, or a server error.
    Broken(String),
}

/// Returns the pause after the given number of tries: 1 s, 2 s, 4 s, …
fn pause(tried: u32) -> Duration {
    FIRST_PAUSE * 2_u32.saturating_pow(tried.saturating_sub(1)).min(64)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether an answer reports the rate limit. A status 403 counts only if it mentions the limit: most are about
/// permissions.
fn is_rate_limited(status: u16, headers: &HeaderMap, answer: &ApiAnswer) -> bool {
    let is_told = header(headers, "retry-after").is_some()
        || header(headers, "x-ratelimit-remaining") == Some("0")
        || answer.message().to_ascii_lowercase().contains("rate limit");
    status == 429 || (status == 403 && is_told)
}

/// Returns the wait that GitHub asks for: `Retry-After`, or the time until a used-up rate limit resets.
fn asked_to_wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| header(headers, name).and_then(|value| value.trim().parse::<u64>().ok());
    if let Some(seconds) = number("retry-after") {
        return Some(Duration::from_secs(seconds));
    }
    // Every answer has a time of reset. It matters only once the limit is used up.
    let reset = number("x-ratelimit-reset").filter(|_| header(headers, "x-ratelimit-remaining") == Some("0"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    // Both times are cut to whole seconds. A second more makes sure that the reset is over.
    Some(Duration::from_secs(reset.saturating_sub(now) + 1))
}

/// Returns the address of the next page: `<…>; rel="next"` in the header `Link`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = header(headers, "link")?;
    let is_next = |parameter: &str| matches!(parameter.trim(), "rel=\"next\"" | "rel=next");
    links.split(',').find_map(|link| {
        let (address, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters.split(';').any(is_next).then(|| address.to_owned())
    })
}
