//! A part of all models. A hash of the model's name decides its part, so new models do not move the others.

use sha2::{Digest, Sha256};

/// One of several parts of all models, such as `hash:1/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    part: u64,
    parts: u64,
}

impl Partition {
    /// Parses a text such as `hash:1/4`. Returns `None` if it is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (part, parts) = text.strip_prefix("hash:")?.split_once('/')?;
        let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
        // The range is empty for 0 parts, so `holds` never divides by 0.
        (1..=parts).contains(&part).then_some(Self { part, parts })
    }

    /// Whether a model, given as `package/model`, is in this part.
    #[must_use]
    pub fn holds(self, identity: &str) -> bool {
        number(identity) % self.parts == self.part - 1
    }

    /// Returns the part that has a model, of the same number of parts. The model is given as `package/model`.
    #[must_use]
    pub fn holding(self, identity: &str) -> Self {
        Self {
            part: number(identity) % self.parts + 1,
            parts: self.parts,
        }
    }

    /// Returns the number of parts.
    #[must_use]
    pub const fn parts(self) -> u64 {
        self.parts
    }
}

fn number(identity: &str) -> u64 {
    // Every job of a matrix must agree. The standard library's hasher may change from release to release.
    let digest = Sha256::digest(identity);
    let first = digest.iter().take(8);
    first.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
}

impl std::fmt::Display for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hash:{}/{}", self.part, self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_hold_every_model_once() {
        for model in ["zoo/vgg16", "zoo/resnet18", "a/b", "ä/ö"] {
            let parts = (1..=4).filter_map(|part| Partition::parse(&format!("hash:{part}/4")));
            let holding: Vec<_> = parts.filter(|part| part.holds(model)).collect();
            assert_eq!(holding, [Partition::parse("hash:1/4").unwrap().holding(model)]);
        }
        for text in ["hash:0/4", "hash:5/4", "1/4", "hash:1/0", "hash:1"] {
            assert_eq!(Partition::parse(text), None, "{text}");
        }
    }
}
