//! Handles: opaque values that go stale when their object is destroyed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock that no panic can poison: nothing here unwinds.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live objects of one kind. A handle is the kind's tag, a slot and the slot's generation,
/// and never an address: a stale or foreign one is refused, where a real driver may crash.
pub(crate) struct Handles<T> {
    tag: u64,
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u64,
    value: Option<T>,
}

const TAG_SHIFT: u32 = 40;
const SLOT_SHIFT: u32 = 16;
const SLOT_MASK: u64 = (1 << (TAG_SHIFT - SLOT_SHIFT)) - 1;
/// Handles are multiples of 16, as addresses of real objects are.
const GENERATION_SHIFT: u32 = 4;
const GENERATION_MASK: u64 = (1 << (SLOT_SHIFT - GENERATION_SHIFT)) - 1;

impl<T> Handles<T> {
    /// `tag` tells kinds apart; not zero.
    pub(crate) const fn new(tag: u64) -> Self {
        Self {
            tag,
            slots: Mutex::new(Slots {
                slots: Vec::new(),
                free: Vec::new(),
            }),
        }
    }

    pub(crate) fn insert(&self, value: T) -> u64 {
        let mut slots = lock(&self.slots);
        let index = slots
            .free
            .pop()
            .map_or(slots.slots.len(), |index| index as usize);
        if index == slots.slots.len() {
            slots.slots.push(Slot {
                generation: 0,
                value: None,
            });
        }
        let slot = &mut slots.slots[index];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.value = Some(value);
        self.tag << TAG_SHIFT | (index as u64) << SLOT_SHIFT | slot.generation << GENERATION_SHIFT
    }

    /// What `look` makes of the object; `None` for a handle that is not alive.
    pub(crate) fn with<R>(&self, handle: u64, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut slots = lock(&self.slots);
        let index = self.index(handle)?;
        slots.alive(index, handle).map(look)
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<T> {
        let mut slots = lock(&self.slots);
        let index = self.index(handle)?;
        slots.alive(index, handle)?;
        slots.free.push(index as u32);
        slots.slots[index].value.take()
    }

    /// Removes whatever is not to be kept.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        let mut slots = lock(&self.slots);
        let Slots { slots, free } = &mut *slots;
        for (index, slot) in slots.iter_mut().enumerate() {
            if slot.value.as_ref().is_some_and(|value| !keep(value)) {
                slot.value = None;
                free.push(index as u32);
            }
        }
    }

    fn index(&self, handle: u64) -> Option<usize> {
        (handle >> TAG_SHIFT == self.tag).then_some((handle >> SLOT_SHIFT & SLOT_MASK) as usize)
    }
}

impl<T> Slots<T> {
    fn alive(&mut self, index: usize, handle: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(index)?;
        let generation = handle >> GENERATION_SHIFT & GENERATION_MASK;
        if slot.generation == generation {
            slot.value.as_mut()
        } else {
            None
        }
    }
}
