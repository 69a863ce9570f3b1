//! Gradients of several cards, reduced in one order.
//!
//! Burn reduces a gradient on a thread of its own, as soon as the last card has made it, while that card goes on making
//! others: how far it comes meanwhile is a matter of chance. Here it waits until the gradient was reduced and the one before
//! is gone. That is one of the orders that can happen, and always the same.
//!
//! Burn's thread says nothing when it is done. So it is given the same gradient once more, under a number that no parameter
//! has and for one card alone, which is left as it is: when it comes to that, it is done with what came before. It reduces
//! only what was registered before the backward phase, so the last card to begin promises one for each of its gradients.

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

/// More than reducing one gradient takes. A thread that is gone does not answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The order, where there is one.
static ORDER: Mutex<Option<Order>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

struct Order {
    cards: usize,
    /// How many cards began to go backward.
    begun: usize,
    /// How many of them are through.
    through: usize,
    /// How many cards have made a gradient.
    made: HashMap<DistributedParamId, usize>,
    /// What Burn's thread was promised to be given, besides gradients.
    promised: Vec<DistributedParams>,
    /// How many tensors are to be reduced before what a card waits for.
    before: usize,
    /// Whether a card waits.
    waits: bool,
    /// What was reduced last.
    last: Option<TensorRef<Observed>>,
    /// Who is told that a card is through.
    tell: Sender<()>,
}

/// Keeps the order from now on. What comes from the receiver says that one more card waits for the others' gradients.
pub(in crate::probe) fn in_order(cards: usize) -> Receiver<()> {
    let (tell, told) = channel();
    *order() = Some(Order {
        cards,
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
    /// A card begins to go backward; the last one promises something for each of its gradients.
    fn begins(&mut self, gradients: &mut Vec<DistributedParams>) {
        self.begun += 1;
        if self.begun < self.cards {
            return;
        }
        self.begun = 0;
        self.last = None;
        let promised = (0..gradients.len() as u64).map(|number| DistributedParams {
            // Numbers of parameters are drawn by chance.
            param_id: DistributedParamId::from(u64::MAX - number),
        });
        self.promised = promised.collect();
        gradients.extend(self.promised.iter().cloned());
    }

    /// A card made a gradient; what to have reduced after it, and to wait for, where it was the last one to make it.
    fn makes(&mut self, gradient: &DistributedParams, tensor: &TensorRef<Observed>) -> Option<DistributedParams> {
        let made = self.made.entry(gradient.param_id).or_default();
        *made += 1;
        if *made < self.cards {
            return None;
        }
        self.made.remove(&gradient.param_id);
        self.last = Some(tensor.clone());
        self.waits_for(self.cards)
    }

    fn waits_for(&mut self, before: usize) -> Option<DistributedParams> {
        let promised = self.promised.pop()?;
        self.before = before;
        self.waits = true;
        Some(promised)
    }

    /// A card is through; whether it is the last one.
    fn ends(&mut self) -> bool {
        // Nobody is there to be told where the run is over.
        let _ = self.tell.send(());
        self.through += 1;
        let is_last = self.through == self.cards;
        if is_last {
            self.through = 0;
            self.made.clear();
        }
        is_last
    }

    /// What was promised and not given: a gradient that not every card made leaves it, and Burn's thread would wait for it.
    fn keeps(&mut self) -> Option<(DistributedParams, TensorRef<Observed>)> {
        let tensor = self.last.clone()?;
        Some((self.waits_for(0)?, tensor))
    }

    /// Whether what Burn's thread came to is what a card waits for.
    fn reduces(&mut self) -> bool {
        if self.before > 0 {
            self.before -= 1;
            return false;
        }
        std::mem::take(&mut self.waits)
    }
}

/// Has Burn's thread reduce what was promised, and waits for it.
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
            return CollectiveTensor::new(tensor);
        }
        // Each is waited for: without order, Burn would do the same a little later.
        let reduced = Inner::all_reduce(tensor.into_inner(), operation, devices).resolve();
        CollectiveTensor::new(reduced.into_observed())
    }

    fn sync_collective(device: &<Self as burn21::tensor::backend::BackendTypes>::Device) {
        Inner::sync_collective(device);
    }
}
