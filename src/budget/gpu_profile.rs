//! Reads one entry of `gpu_profiles`.

use super::fields::FieldReader;
use super::problem::BudgetProblem;
use super::scalar::{Bad, compute_capability, count, size};
use super::source::Spanned;
use super::tree::{Key, Node};
use super::types::GpuProfileEntry;
use crate::bytes::Bytes;
use crate::gpu::is_id;
use crate::names::{quoted, suggest};

pub(super) const A_PROFILE: &str = "`lab-gpu: { like: l4, total: 20 GiB }`";

const PROFILE: [&str; 7] = [
    "like",
    "total",
    "name",
    "sm_count",
    "compute_capability",
    "shared_memory_per_block_optin",
    "context",
];

impl FieldReader<'_> {
    pub(super) fn gpu_profile(&mut self, key: &Key, node: &Node, built_in: &[&str]) -> Option<GpuProfileEntry> {
        let id = key.text.as_str();
        if built_in.contains(&id) {
            self.problems.push(
                BudgetProblem::new(
                    "budgets::built-in-gpu",
                    format!("{} is the name of a built-in GPU", quoted(id)),
                )
                .at(key.span, "built-in GPU")
                .help("choose another name for your GPU: a profile cannot change a built-in GPU"),
            );
        }
        if !is_id(id) {
            let help = "use 1 to 32 of a-z, 0-9 and `-`, not only digits, and no `-` at either end: `lab-gpu`";
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
            .and_then(|node| self.text(node, "`name`", "`name: Lab GPU`"));
        let sm_count = fields
            .get("sm_count")
            .and_then(|node| self.scalar(node, "`sm_count`", sm_count, "a whole number", "`sm_count: 58`"));
        let compute_capability = fields.get("compute_capability").and_then(|node| {
            let example = "`compute_capability: 8.9`";
            self.scalar(node, "`compute_capability`", compute_capability, "a version", example)
        });
        // Last, because its `?` would hide the mistakes in all other keys.
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
                BudgetProblem::new("budgets::missing-like", "`like` is missing".to_owned())
                    .at(key.span, "no `like` in this GPU profile")
                    .help("add the built-in GPU that is most like this one: `like: l4`"),
            );
            return None;
        };
        let like = self.text(node, "`like`", "`like: l4`")?;
        if !built_in.contains(&like.value.as_str()) {
            let message = format!("`like` must be a built-in GPU, not {}", quoted(&like.value));
            let help = suggest(&like.value, built_in.iter().copied());
            self.problems.push(
                BudgetProblem::new("budgets::unknown-gpu", message)
                    .at(like.span, "not a built-in GPU")
                    .help(help.unwrap_or_else(|| "run `cargo vram gpus` to list the built-in GPUs".to_owned())),
            );
        }
        Some(like)
    }
}

fn total(text: &str) -> Result<Bytes, Bad> {
    size(text).and_then(|bytes| match bytes {
        Bytes(0) => Err(Bad {
            code: "budgets::bad-size",
            message: "the total memory of a GPU must be more than 0".to_owned(),
            help: "write the total memory of the GPU: `total: 20 GiB`".to_owned(),
        }),
        bytes => Ok(bytes),
    })
}

fn sm_count(text: &str) -> Result<u32, Bad> {
    count(text).and_then(|number| match u32::try_from(number) {
        Ok(number @ 1..) => Ok(number),
        _ => Err(Bad {
            code: "budgets::bad-number",
            message: format!("a GPU cannot have {} multiprocessors", quoted(text)),
            help: "write the number of streaming multiprocessors: `sm_count: 58`".to_owned(),
        }),
    })
}
