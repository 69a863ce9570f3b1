//! A limit on the number of processes that run in parallel.

use std::sync::{Condvar, Mutex, PoisonError};

/// The free places for processes that run in parallel.
pub(super) struct JobSlots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// The right to run one process, until the value is dropped.
pub(super) struct JobSlot<'a>(&'a JobSlots);

impl JobSlots {
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            freed: Condvar::new(),
        }
    }

    /// Waits until a place is free, and takes it.
    pub(super) fn take(&self) -> JobSlot<'_> {
        // The count is correct even if a thread panicked while it held the lock.
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        JobSlot(self)
    }
}

impl Drop for JobSlot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
