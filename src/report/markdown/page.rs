//! What a page is made of, and what is left of it where it may not be that long.

use std::fmt::Write;

/// So many items of a section stay until there is no other left to shorten.
const FIRST: usize = 20;

/// A part of a page: lines that come together, of which the last may be left out.
#[derive(Debug, Default)]
pub(in crate::report) struct Section {
    /// Before the items, with a heading.
    pub(in crate::report) head: String,
    /// A line each, with its end.
    pub(in crate::report) items: Vec<String>,
    /// After them.
    pub(in crate::report) tail: String,
    /// What an item is: `change`.
    pub(in crate::report) noun: &'static str,
    /// The larger, the sooner its items are left out.
    pub(in crate::report) rank: u8,
}

impl Section {
    pub(in crate::report) fn text(text: String) -> Self {
        Self {
            head: text,
            ..Self::default()
        }
    }

    /// How long it is without items, and with a line that counts those that are left out.
    fn bare(&self) -> usize {
        self.head.len() + self.tail.len() + 80
    }
}

/// Puts the sections one below the other, in at most so many bytes. What is left out is counted where it stood.
pub(in crate::report) fn fit(mut sections: Vec<Section>, most: usize) -> String {
    let items = |section: &Section| section.items.iter().map(String::len).sum::<usize>();
    let mut length: usize = sections.iter().map(|section| section.bare() + items(section)).sum();
    let mut order: Vec<usize> = (0..sections.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse((sections[at].rank, at)));
    let mut dropped = vec![0_usize; sections.len()];
    // The first of each are more than what comes after them in any other.
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
        let page = |most| fit(vec![section("change", 1), section("figure", 2)], most);
        assert!(!page(10_000).contains("left out"));
        let shorter = page(500);
        assert!(shorter.len() <= 500);
        assert!(shorter.contains("more figures, left out") && !shorter.contains("more change"));
        let shortest = page(300);
        assert!(shortest.len() <= 300, "{}", shortest.len());
        assert!(shortest.contains("and 20 more figures") && shortest.contains("more changes"));
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
