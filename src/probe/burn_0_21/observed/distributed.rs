//! Reduces the gradients of several GPUs in one order, which is the same in every run.
//!
//! Burn reduces a gradient on its own thread as soon as the last GPU has made it. Meanwhile that GPU makes other
//! gradients, and chance decides how many. Here, that GPU waits until the gradient is reduced and the one before it is
//! freed. This order can also happen without waiting.
//!
//! Burn's thread does not report when it is done. So we submit the same gradient once more, for only one GPU and under
//! an id that no parameter has. Its tensor stays unchanged. When Burn's thread comes to this second submission, it is
//! done with everything before.
//!
//! Burn's thread reduces only what was registered before the backward phase. So the last GPU to begin "promises"
//! (registers) one second submission for each of its gradients.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burn_backend21::DeviceId;
use burn_backend21::distributed::{
    CollectiveTensor, DistributedBackend, DistributedParamId, DistributedParams, ReduceOperation, TensorRef,
    get_distributed_sync_client,
};
use burn_backend21::tensor::FloatTensor;

use super::tensor::{Argument, Primitive};
use super::{Inner, Observed};
use crate::probe::events;

/// The longest wait for Burn's thread: more than it takes to reduce one gradient. A thread that has ended does not
/// answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The state of the order, if reductions are ordered.
static ORDER: Mutex<Option<Order>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

struct Order {
    gpus: usize,
    /// The number of GPUs that began to go backward.
    begun: usize,
    /// The number of these that have finished.
    through: usize,
    /// The number of GPUs that have made each gradient.
    made: HashMap<DistributedParamId, usize>,
    /// What was promised to Burn's thread besides gradients, and not submitted yet.
    promised: Vec<DistributedParams>,
    /// The number of tensors that Burn's thread reduces before the one that a GPU waits for.
    before: usize,
    /// Whether a GPU waits for Burn's thread.
    waits: bool,
    /// The last gradient that all GPUs had made.
    last: Option<TensorRef<Observed>>,
    /// Sends a message for each GPU that has finished going backward.
    tell: Sender<()>,
}

/// Orders the reductions from now on. The receiver gets a message whenever one more GPU waits for the others'
/// gradients.
pub(in crate::probe) fn in_order(gpus: usize) -> Receiver<()> {
    let (tell, told) = channel();
    *order() = Some(Order {
        gpus,
        begun: 0,
        through: 0,
        made: HashMap::new(),
        promised: Vec::new(),
        before: 0,
        waits: false,
        last: None,
        tell,
    });
    told
}

fn order() -> MutexGuard<'static, Option<Order>> {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Order {
    /// Records that a GPU begins to go backward. The last GPU promises one more submission for each of its gradients.
    fn begins(&mut self, gradients: &mut Vec<DistributedParams>) {
        self.begun += 1;
        if self.begun < self.gpus {
            return;
        }
        self.begun = 0;
        // A pointer into the step before, whose tensor no longer exists.
        self.last = None;
        let promised = (0..gradients.len() as u64).map(|number| DistributedParams {
            // The ids of parameters are random, so these are not among them.
            param_id: DistributedParamId::from(u64::MAX - number),
        });
        self.promised = promised.collect();
        gradients.extend(self.promised.iter().cloned());
    }

    /// Records that a GPU made a gradient. If it was the last GPU to make it, returns what to submit after the gradient
    /// and to wait for.
    fn makes(&mut self, gradient: &DistributedParams, tensor: &TensorRef<Observed>) -> Option<DistributedParams> {
        let made = self.made.entry(gradient.param_id).or_default();
        *made += 1;
        if *made < self.gpus {
            return None;
        }
        self.made.remove(&gradient.param_id);
        // Kept for promises that no gradient redeems (`keeps`), which need some tensor.
        self.last = Some(tensor.clone());
        self.waits_for(self.gpus)
    }

    fn waits_for(&mut self, before: usize) -> Option<DistributedParams> {
        let promised = self.promised.pop()?;
        self.before = before;
        self.waits = true;
        Some(promised)
    }

    /// Records that a GPU has finished going backward. Returns whether it is the last one.
    fn ends(&mut self) -> bool {
        // If the run is over, nobody receives this.
        let _ = self.tell.send(());
        self.through += 1;
        let is_last = self.through == self.gpus;
        if is_last {
            self.through = 0;
            // A gradient that not every GPU made must not count in the next step.
            self.made.clear();
        }
        is_last
    }

    /// Returns a promise that is not kept yet, and the tensor to submit for it. A gradient that not every GPU made
    /// leaves such a promise, and Burn's thread would wait for it.
    fn keeps(&mut self) -> Option<(DistributedParams, TensorRef<Observed>)> {
        let tensor = self.last.clone()?;
        Some((self.waits_for(0)?, tensor))
    }

    /// Whether Burn's thread has come to what a GPU waits for.
    fn reduces(&mut self) -> bool {
        if self.before > 0 {
            self.before -= 1;
            return false;
        }
        std::mem::take(&mut self.waits)
    }
}

/// Submits what was promised to Burn's thread, and waits until the thread comes to it.
fn wait_for(promised: DistributedParams, tensor: TensorRef<Observed>) {
    if let Some(client) = get_distributed_sync_client::<Observed>() {
        client.submit_gradient_sync(tensor, promised);
        let waits = |order: &mut Option<Order>| order.as_ref().is_some_and(|order| order.waits);
        let waited = CHANGED.wait_timeout_while(order(), PATIENCE, waits);
        if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
            events::impossible("Burn's thread that reduces gradients does not answer".to_owned());
        }
    }
}

impl DistributedBackend for Observed {
    fn register_sync_parameters(_: &Self::Device, mut gradients: Vec<DistributedParams>) {
        if let Some(order) = order().as_mut() {
            order.begins(&mut gradients);
        }
        if let Some(client) = get_distributed_sync_client::<Self>() {
            client.register_sync_parameters(gradients);
        }
    }

    fn submit_gradient_sync(tensor: TensorRef<Self>, gradient: DistributedParams) {
        // The lock is released before the wait: Burn's thread needs it to answer.
        let promised = order().as_mut().and_then(|order| order.makes(&gradient, &tensor));
        if let Some(client) = get_distributed_sync_client::<Self>() {
            client.submit_gradient_sync(tensor.clone(), gradient);
        }
        if let Some(promised) = promised {
            wait_for(promised, tensor);
        }
    }

    fn submit_sync_collective(device: &Self::Device) {
        let is_last = order().as_mut().is_some_and(Order::ends);
        if is_last {
            let next = || order().as_mut().and_then(Order::keeps);
            std::iter::from_fn(next).for_each(|(promised, tensor)| wait_for(promised, tensor));
        }
        if let Some(client) = get_distributed_sync_client::<Self>() {
            client.submit_sync_collective(device.clone());
        }
    }

    fn all_reduce(
        tensor: FloatTensor<Self>,
        operation: ReduceOperation,
        devices: Vec<DeviceId>,
    ) -> CollectiveTensor<Self> {
        if order().as_mut().is_some_and(Order::reduces) {
            CHANGED.notify_all();
            // The promised submission itself: it comes from one GPU only, and its tensor must stay as it is.
            return CollectiveTensor::new(tensor);
        }
        // Wait for each reduction. Burn itself would do the same a little later.
        let reduced = Inner::all_reduce(tensor.into_inner(), operation, devices).resolve();
        CollectiveTensor::new(reduced.into_observed())
    }

    fn sync_collective(device: &<Self as burn21::tensor::backend::BackendTypes>::Device) {
        Inner::sync_collective(device);
    }
}
