//! An explanation as an HTML page: one file that loads nothing else.
//!
//! Text from outside enters the page as JSON without the character `<`. It is cleaned before, and the script inserts it
//! only as text. The page's content security policy allows its own script and style by their hashes, and no connection.

mod data;
mod pack;

use sha2::{Digest, Sha256};

use super::picture::ShownExplanation;

const STYLE: &str = include_str!("report.css");
/// The parts of the script. Together they are the body of one function; each part uses the parts before it.
const SCRIPT: [&str; 8] = [
    include_str!("script/data.js"),
    include_str!("script/dom.js"),
    include_str!("script/timeline.js"),
    include_str!("script/treemap.js"),
    include_str!("script/moment.js"),
    include_str!("script/layers.js"),
    include_str!("script/tables.js"),
    include_str!("script/page.js"),
];

/// How the page arranges several explanations.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// One at a time: each explanation has a tab.
    #[default]
    Apart,
    /// Side by side: the first explanation is the state before the change.
    Compared,
}

/// Renders the page. Every explanation must have passed [`Explanation::check`](crate::explain::Explanation::check).
#[must_use]
pub fn html(shown: &[ShownExplanation<'_>], arrangement: Arrangement) -> String {
    // One function around all parts: later parts use names of earlier ones, and no name becomes global.
    // See docs/design/html-page.md.
    let script = format!("(() => {{\n'use strict';\n{}\n}})();\n", SCRIPT.join("\n"));
    let data = data::page(shown, arrangement == Arrangement::Compared);
    let title = shown
        .first()
        .map_or("no model", |shown| shown.explanation.run.model.as_str());
    let more = match shown.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    // A browser hashes the exact bytes between the tags, so nothing may stand beside `{STYLE}` and
    // `{script}`. `default-src` does not cover `base-uri` and `form-action`, so both have their own rule.
    format!(
        "<!DOCTYPE html>\n\
         <html lang=\"en\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {script_hash}; style-src \
         {style_hash}; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}{more} · GPU memory</title>\n\
         <style>{STYLE}</style>\n\
         </head>\n\
         <body>\n\
         <noscript>This page needs JavaScript, but JavaScript is off. The JSON file of the explanation has the same \
         data.</noscript>\n\
         <main id=\"page\"></main>\n\
         <script type=\"application/json\" id=\"data\">{json}</script>\n\
         <script>{script}</script>\n\
         </body>\n\
         </html>\n",
        script_hash = hash(&script),
        style_hash = hash(STYLE),
        title = escaped(&crate::untrusted::named(title)),
        json = inert(&data.to_string()),
    )
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", pack::base64(&Sha256::digest(text)))
}

/// Escapes JSON so that nothing in it ends a script or begins a tag. In JSON, these characters occur only within
/// strings.
fn inert(json: &str) -> String {
    // Without `<`, no text can write `</script`, which ends the element, or `<!--`, which can hide its end.
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Escapes a text for use between tags or in an attribute.
pub(super) fn escaped(text: &str) -> String {
    // `&` comes first: later, it would escape the entities of the other characters.
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests;
