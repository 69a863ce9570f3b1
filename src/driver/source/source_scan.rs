//! What can be read from CUDA C++ without compiling it: kernels, launch bounds, static shared
//! memory. A kernel whose name C++ would mangle is found through its name expression instead.

use crate::ptx::{Element, Entry};

/// The kernels of a source, in order. `extern "C"` ones only.
pub(crate) fn entries(source: &[u8]) -> Vec<Entry> {
    let mut scan = Scan { source, at: 0 };
    let mut entries: Vec<Entry> = Vec::new();
    let mut words = [&b""[..]; 2];
    let mut c_block = false;
    while let Some(word) = scan.word() {
        let c_linkage = words == [&b"extern"[..], b"C"];
        match word {
            b"C" if words[1] == b"extern" => c_block |= scan.opens_block(),
            b"__global__" if c_linkage || c_block => entries.extend(scan.kernel()),
            b"__shared__" if words[1] != b"extern" => {
                let bytes = scan.shared_bytes().unwrap_or(0);
                if let Some(entry) = entries.last_mut() {
                    entry.static_shared += bytes;
                }
            }
            _ => {}
        }
        words = [words[1], word];
    }
    entries
}

struct Scan<'source> {
    source: &'source [u8],
    at: usize,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl<'source> Scan<'source> {
    fn rest(&self) -> &'source [u8] {
        &self.source[self.at.min(self.source.len())..]
    }

    fn skip_to(&mut self, end: &[u8]) {
        let found = self.rest().windows(end.len()).position(|part| part == end);
        self.at = found.map_or(self.source.len(), |position| self.at + position + end.len());
    }

    /// Skips white space, comments, and, if `punctuation`, everything that is no word.
    fn skip(&mut self, punctuation: bool) {
        while let Some(&byte) = self.rest().first() {
            if self.rest().starts_with(b"//") {
                self.skip_to(b"\n");
            } else if self.rest().starts_with(b"/*") {
                self.skip_to(b"*/");
            } else if byte.is_ascii_whitespace() || (punctuation && !is_word(byte)) {
                self.at += 1;
            } else {
                break;
            }
        }
    }

    fn take_word(&mut self) -> &'source [u8] {
        let length = self
            .rest()
            .iter()
            .take_while(|byte| is_word(**byte))
            .count();
        let word = &self.rest()[..length];
        self.at += length;
        word
    }

    fn word(&mut self) -> Option<&'source [u8]> {
        self.skip(true);
        Some(self.take_word()).filter(|word| !word.is_empty())
    }

    /// Behind `extern "C`: whether a block follows, in which every kernel has C linkage.
    fn opens_block(&mut self) -> bool {
        self.at += usize::from(self.rest().first() == Some(&b'"'));
        self.skip(false);
        self.rest().first() == Some(&b'{')
    }

    /// The text between the parentheses that follow.
    fn parenthesised(&mut self) -> Option<&'source [u8]> {
        self.skip(false);
        let inner = self.rest().strip_prefix(b"(")?;
        let mut depth = 1;
        let end = inner.iter().position(|byte| {
            depth += match byte {
                b'(' => 1,
                b')' => -1,
                _ => 0,
            };
            depth == 0
        })?;
        self.at += end + 2;
        Some(&inner[..end])
    }

    /// Behind `__global__`: attributes and `void`, then the name before its parameters.
    fn kernel(&mut self) -> Option<Entry> {
        let mut entry = Entry::default();
        loop {
            let word = self.word()?;
            match word {
                b"__launch_bounds__" => {
                    let first = self.parenthesised()?.split(|byte| *byte == b',').next()?;
                    entry.max_threads = number(first).and_then(|bound| bound.try_into().ok());
                }
                b"__cluster_dims__" | b"__maxnreg__" | b"__block_size__" | b"__attribute__" => {
                    self.parenthesised()?;
                }
                _ => {
                    self.skip(false);
                    if self.rest().first() == Some(&b'(') {
                        entry.name = String::from_utf8_lossy(word).into_owned();
                        entry.parameters = self.parenthesised().map(parameters).unwrap_or_default();
                        return Some(entry);
                    }
                }
            }
        }
    }

    /// Behind `__shared__`: the bytes of a variable whose type and sizes are plain.
    fn shared_bytes(&mut self) -> Option<u64> {
        let end = self.rest().iter().position(|byte| *byte == b';')?;
        let declaration = &self.rest()[..end];
        let mut inner = Scan {
            source: declaration,
            at: 0,
        };
        let mut element = None;
        while let Some(word) = inner.word() {
            if matches!(word, b"alignas" | b"__align__") {
                inner.parenthesised()?;
            } else if element.is_none() {
                element = size_of_type(word);
            }
        }
        let mut bytes = element?;
        for part in declaration.split(|byte| *byte == b'[').skip(1) {
            bytes = bytes.checked_mul(number(part.split(|byte| *byte == b']').next()?)?)?;
        }
        Some(bytes)
    }
}

/// What each of a kernel's parameters points to. There is one for each, of whatever type: a launch hands over as many.
fn parameters(list: &[u8]) -> Vec<Option<Element>> {
    let element = |parameter: &[u8]| {
        let star = parameter.iter().position(|byte| *byte == b'*')?;
        let pointed = std::str::from_utf8(&parameter[..star]).ok()?;
        let is_of_no_type = |word: &&str| matches!(*word, "const" | "volatile" | "unsigned" | "signed");
        let mut words = pointed.split_whitespace().rev();
        match words.by_ref().find(|word| !is_of_no_type(word)) {
            Some("long" | "size_t") => Some(Element::Whole(8)),
            Some("short") => Some(Element::Whole(2)),
            Some(word) => Element::parse(word),
            None => pointed.contains("signed").then_some(Element::Whole(4)),
        }
    };
    let list = without_comments(list);
    if list.trim_ascii().is_empty() {
        return Vec::new();
    }
    // A comma between brackets is one of a parameter's type.
    let mut depth = 0_i32;
    let is_between = |byte: &u8| {
        depth += match byte {
            b'<' | b'(' | b'[' | b'{' => 1,
            b'>' | b')' | b']' | b'}' => -1,
            _ => 0,
        };
        *byte == b',' && depth == 0
    };
    list.split(is_between).map(element).collect()
}

fn without_comments(text: &[u8]) -> Vec<u8> {
    let mut scan = Scan { source: text, at: 0 };
    let mut kept = Vec::new();
    while let Some(&byte) = scan.rest().first() {
        if scan.rest().starts_with(b"//") || scan.rest().starts_with(b"/*") {
            scan.skip(false);
            kept.push(b' ');
        } else {
            kept.push(byte);
            scan.at += 1;
        }
    }
    kept
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text)
        .ok()?
        .trim()
        .trim_end_matches(['u', 'U', 'l', 'L'])
        .parse()
        .ok()
}

fn size_of_type(name: &[u8]) -> Option<u64> {
    Some(match name {
        b"char" | b"bool" | b"int8" | b"uint8" | b"int8_t" | b"uint8_t" => 1,
        b"short" | b"int16" | b"uint16" | b"int16_t" | b"uint16_t" | b"half" | b"__half" => 2,
        b"__nv_bfloat16" => 2,
        b"int" | b"float" | b"int32" | b"uint32" | b"int32_t" | b"uint32_t" | b"uint" => 4,
        b"double" | b"int64" | b"uint64" | b"int64_t" | b"uint64_t" | b"float2" | b"barrier" => 8,
        b"float4" | b"int4" | b"uint4" => 16,
        b"CUtensorMap" => 128,
        _ => return None,
    })
}
