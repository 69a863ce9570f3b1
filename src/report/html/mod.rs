//! An explanation as a page to look at: one file that needs nothing else, and asks for nothing.
//!
//! Foreign text gets in as JSON in which `<` does not occur, is made harmless before, and is only ever shown as text.
//! The page's policy allows its own script and style, by their hashes, and no connection at all.

mod data;
mod pack;

use sha2::{Digest, Sha256};

use super::picture::Shown;

const STYLE: &str = include_str!("report.css");
/// One function's body; each part uses those before it.
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

/// How several explanations are arranged.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// One at a time, to choose from.
    #[default]
    Apart,
    /// Side by side, the first one being what it was before.
    Compared,
}

/// Draws the page. Everything that is shown must have passed [`Explanation::check`](crate::explain::Explanation::check).
#[must_use]
pub fn html(shown: &[Shown<'_>], arrangement: Arrangement) -> String {
    let script = format!("(() => {{\n'use strict';\n{}\n}})();\n", SCRIPT.join("\n"));
    let data = data::page(shown, arrangement == Arrangement::Compared);
    let title = shown
        .first()
        .map_or("no model", |shown| shown.explanation.run.model.as_str());
    let more = match shown.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
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
         <noscript>This page draws itself with JavaScript, which is off. What it draws is in the JSON file that it was made of.</noscript>\n\
         <main id=\"page\"></main>\n\
         <script type=\"application/json\" id=\"data\">{json}</script>\n\
         <script>{script}</script>\n\
         </body>\n\
         </html>\n",
        script_hash = hash(&script),
        style_hash = hash(STYLE),
        title = escaped(&crate::report::human::text::named(title)),
        json = inert(&data.to_string()),
    )
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", pack::base64(&Sha256::digest(text)))
}

/// JSON in which nothing ends a script or begins a tag. Such characters only occur within its strings.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A text between tags.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests;
