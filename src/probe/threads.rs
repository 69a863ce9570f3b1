//! Burn's own threads, by their names.

use crate::protocol::MOST_CARDS;

/// Burn's threads are named `DSU-0-1`, `DSD-0-1`: what they are, the type of their device, and which of those it is.
pub(super) const DEVICE_THREADS: &str = "DS";

/// The card whose thread this is, of Burn's own.
pub(super) fn card() -> Option<u32> {
    thread_local! {
        static CARD: Option<u32> = of_thread(std::thread::current().name()?);
    }
    CARD.with(|card| *card)
}

fn of_thread(name: &str) -> Option<u32> {
    let (stage, card) = name.strip_prefix(DEVICE_THREADS)?.rsplit_once('-')?;
    let is_burns = stage.starts_with("U-") || stage.starts_with("D-");
    card.parse().ok().filter(|card| is_burns && *card < MOST_CARDS)
}
