//! One entry of `gpu_profiles`.

use super::fields::Reader;
use super::problem::Problem;
use super::scalar::{Bad, compute_capability, count, size};
use super::source::Spanned;
use super::tree::{Key, Node};
use super::types::GpuProfileEntry;
use crate::bytes::Bytes;
use crate::names::{quoted, suggest};

pub(super) const A_PROFILE: &str = "`lab-card: { like: l4, total: 20 GiB }`";

const PROFILE: [&str; 7] = [
    "like",
    "total",
    "name",
    "sm_count",
    "compute_capability",
    "shared_memory_per_block_optin",
    "context",
];

impl Reader<'_> {
    pub(super) fn gpu_profile(&mut self, key: &Key, node: &Node, built_in: &[&str]) -> Option<GpuProfileEntry> {
        let id = key.text.as_str();
        if built_in.contains(&id) {
            self.problems.push(
                Problem::new("budgets::built-in-gpu", format!("the GPU {} is built in", quoted(id)))
                    .at(key.span, "built in")
                    .help("give your card an id of its own: its figures are not the built-in card's"),
            );
        }
        if !is_gpu_id(id) {
            let help = "use 1 to 32 of a-z, 0-9 and `-`, with no `-` at either end: `lab-card`";
            self.bad_name(id, key.span, help);
        }
        let fields = self.fields(node, "a GPU profile", &PROFILE, A_PROFILE)?;
        let size_of =
            |reader: &mut Self, key: &str| fields.get(key).and_then(|node| reader.size(node, &format!("`{key}`")));
        let shared_memory_per_block_optin = size_of(self, "shared_memory_per_block_optin");
        let context = size_of(self, "context");
        let total = fields
            .get("total")
            .and_then(|node| self.scalar(node, "`total`", total, "a size", "`total: 20 GiB`"));
        let name = fields
            .get("name")
            .and_then(|node| self.text(node, "`name`", "`name: Lab card`"));
        let sm_count = fields
            .get("sm_count")
            .and_then(|node| self.scalar(node, "`sm_count`", sm_count, "a whole number", "`sm_count: 58`"));
        let compute_capability = fields.get("compute_capability").and_then(|node| {
            let example = "`compute_capability: 8.9`";
            self.scalar(node, "`compute_capability`", compute_capability, "a version", example)
        });
        let like = self.like(key, fields.get("like"), built_in)?;
        Some(GpuProfileEntry {
            span: key.span,
            like,
            total,
            name,
            sm_count,
            compute_capability,
            shared_memory_per_block_optin,
            context,
        })
    }

    fn like(&mut self, key: &Key, node: Option<&Node>, built_in: &[&str]) -> Option<Spanned<String>> {
        let Some(node) = node else {
            self.problems.push(
                Problem::new("budgets::missing-like", "`like` is missing".to_owned())
                    .at(key.span, "which card is it like?")
                    .help("name the built-in card that this one is nearest to: `like: l4`"),
            );
            return None;
        };
        let like = self.text(node, "`like`", "`like: l4`")?;
        if !built_in.contains(&like.value.as_str()) {
            let message = format!("`like` takes a built-in GPU, and {} is none", quoted(&like.value));
            let help = suggest(&like.value, built_in.iter().copied());
            self.problems.push(
                Problem::new("budgets::unknown-gpu", message)
                    .at(like.span, "not a built-in GPU")
                    .help(help.unwrap_or_else(|| "`cargo vram gpus` lists them".to_owned())),
            );
        }
        Some(like)
    }
}

/// The same rule as everywhere for the id of a card.
fn is_gpu_id(id: &str) -> bool {
    let fits = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=32).contains(&id.len()) && id.bytes().all(fits) && !id.starts_with('-') && !id.ends_with('-')
}

fn total(text: &str) -> Result<Bytes, Bad> {
    size(text).and_then(|bytes| match bytes {
        Bytes(0) => Err(Bad {
            code: "budgets::bad-size",
            message: "a card with no memory runs nothing".to_owned(),
            help: "write its total memory: `total: 20 GiB`".to_owned(),
        }),
        bytes => Ok(bytes),
    })
}

fn sm_count(text: &str) -> Result<u32, Bad> {
    count(text).and_then(|number| match u32::try_from(number) {
        Ok(number @ 1..) => Ok(number),
        _ => Err(Bad {
            code: "budgets::bad-number",
            message: format!("no card has {} multiprocessors", quoted(text)),
            help: "write as many as the card has: `sm_count: 58`".to_owned(),
        }),
    })
}
