//! How many processes run at once.

use std::sync::{Condvar, Mutex, PoisonError};

/// How many processes may run at once.
pub(super) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// The right to run one, until it is dropped.
pub(super) struct Slot<'a>(&'a Slots);

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            freed: Condvar::new(),
        }
    }

    /// Waits until one may run.
    pub(super) fn take(&self) -> Slot<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
