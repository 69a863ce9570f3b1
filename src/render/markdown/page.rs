//! The sections of a Markdown page, and how the page is shortened to a maximum length.

use std::fmt::Write;

/// The first items of a section. They stay until every section has at most this many items.
const FIRST: usize = 20;

/// A part of a page: a head, items and a tail. The last items may be left out.
#[derive(Debug, Default)]
pub(in crate::render) struct Section {
    /// The text before the items, with the heading.
    pub(in crate::render) head: String,
    /// The items: one line each, including the line end.
    pub(in crate::render) items: Vec<String>,
    /// The text after the items.
    pub(in crate::render) tail: String,
    /// The singular noun for an item: `change`.
    pub(in crate::render) noun: &'static str,
    /// Sections with a larger rank lose items first.
    pub(in crate::render) rank: u8,
}

impl Section {
    pub(in crate::render) fn from_text(text: String) -> Self {
        Self {
            head: text,
            ..Self::default()
        }
    }

    /// Returns the length without items, plus room for the line that counts the left-out items.
    fn bare(&self) -> usize {
        // That line has a number and a noun, so 80 bytes are always
        // enough. Heads and tails are never left out.
        self.head.len() + self.tail.len() + 80
    }
}

/// Joins the sections to a page of at most `most` bytes. Left-out items are counted at the end of their section.
pub(in crate::render) fn fit(mut sections: Vec<Section>, most: usize) -> String {
    let items = |section: &Section| section.items.iter().map(String::len).sum::<usize>();
    // Lengths are in bytes. GitHub's limit for comments counts characters, which are never more than bytes.
    let mut length: usize = sections.iter().map(|section| section.bare() + items(section)).sum();
    let mut order: Vec<usize> = (0..sections.len()).collect();
    // Of equal ranks, the later section loses items first.
    order.sort_by_key(|&at| std::cmp::Reverse((sections[at].rank, at)));
    let mut dropped = vec![0_usize; sections.len()];
    // The first items of each section are more important than the later items of any section.
    for kept in [FIRST, 0] {
        for &at in &order {
            while length > most && sections[at].items.len() > kept {
                let Some(item) = sections[at].items.pop() else { break };
                length -= item.len();
                dropped[at] += 1;
            }
        }
    }
    let mut page = String::new();
    for (section, dropped) in sections.into_iter().zip(dropped) {
        page.push_str(&section.head);
        page.extend(section.items);
        page.push_str(&section.tail);
        if dropped > 0 {
            let plural = if dropped == 1 { "" } else { "s" };
            let _ = writeln!(
                page,
                "\n… and {dropped} more {}{plural}, left out for length\n",
                section.noun
            );
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(noun: &'static str, rank: u8) -> Section {
        Section {
            head: format!("# {noun}\n"),
            items: vec!["0123456789\n".to_owned(); 20],
            tail: "end\n".to_owned(),
            noun,
            rank,
        }
    }

    #[test]
    fn the_least_important_goes_first_and_is_counted() {
        let page = |most| fit(vec![section("change", 1), section("value", 2)], most);
        assert!(!page(10_000).contains("left out"));
        let shorter = page(500);
        assert!(shorter.len() <= 500);
        assert!(shorter.contains("more values, left out") && !shorter.contains("more change"));
        let shortest = page(300);
        assert!(shortest.len() <= 300, "{}", shortest.len());
        assert!(shortest.contains("and 20 more values") && shortest.contains("more changes"));
    }

    #[test]
    fn the_first_of_each_outlast_the_rest_of_others() {
        let long = |noun, rank| Section {
            items: (0..3000).map(|at| format!("{noun} number {at}\n")).collect(),
            ..section(noun, rank)
        };
        let page = fit(vec![long("finding", 1), long("row", 2)], 5000);
        assert!(page.len() <= 5000, "{}", page.len());
        let shown = |noun: &str| page.matches(&format!("{noun} number ")).count();
        assert_eq!(shown("row"), FIRST);
        assert!(shown("finding") > FIRST);
        assert!(page.contains("… and 2980 more rows, left out"), "{page}");
    }
}
