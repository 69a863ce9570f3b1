//! Finds where autodiff goes backward in Burn's `TrainStep`. It runs forward and backward in one call, so we cannot
//! mark the phase between them.
//!
//! Before autodiff computes the first gradient, it walks its graph from the loss to the parameters and sorts the nodes
//! by depth. It drops a node that claims to be deeper than the loss, and at that moment the backward phase begins. So
//! we give such a node to one parameter as its parent. The parameter's own tensor, gradient and requirements stay the
//! same, and nothing is computed or allocated. We use only public functions of Burn, though some of their types have no
//! public name.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use burn21::backend::autodiff::NodeId;
use burn21::backend::autodiff::checkpoint::base::Checkpointer;
use burn21::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn21::backend::autodiff::grads::Gradients;
use burn21::backend::autodiff::ops::{Backward, Ops, OpsPrep, Tracked as WithState, UnTracked};
use burn21::module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param};
use burn21::tensor::backend::{AutodiffBackend, Backend, BackendTypes};
use burn21::tensor::{Tensor, TensorPrimitive};

use super::{ModelBackend, Tracked};

/// A tensor of the backend that trainings run on.
type TrackedTensor = <Tracked as BackendTypes>::FloatTensorPrimitive;

/// A depth that is greater than that of any graph.
// autodiff's list of depths ends at that of the loss, and it drops a node beyond it. Half of the maximum, so
// that a depth can be added to it. See docs/design/phases.md.
const BELOW_EVERYTHING: usize = usize::MAX / 2;

/// A guard: as long as it is held, the start of the model's backward phase is announced.
pub(in crate::probe) struct Announced {
    is_awaited: Arc<AtomicBool>,
    /// Keeps the planted nodes alive, so that autodiff does not clean them up before it goes backward.
    _nodes: Vec<Arc<NodeId>>,
}

impl Announced {
    /// Whether autodiff has gone backward.
    pub(in crate::probe) fn came(&self) -> bool {
        !self.is_awaited.load(Ordering::Relaxed)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // From now on, a dropped node does not mean that autodiff goes backward.
        self.is_awaited.store(false, Ordering::Relaxed);
    }
}

/// Sets `began` to be called when autodiff next goes backward from a loss of this model. The call is on autodiff's
/// thread, before it computes the first gradient.
///
/// `began` is not called if the loss depends on none of the watched parameters.
pub(in crate::probe) fn announce<B: AutodiffBackend, M: AutodiffModule<B>>(
    model: M,
    watched: Watched,
    began: impl FnOnce() + Send + 'static,
) -> (M, Announced) {
    let mut parameters = Learnable::default();
    model.visit(&mut parameters);
    let is_awaited = Arc::new(AtomicBool::new(true));
    let mut planter = Planter {
        // A mapper does not know which parameter is the last one, so count first.
        left: parameters.count,
        watched,
        bell: Bell {
            began: Arc::new(Mutex::new(Some(Box::new(began)))),
            is_awaited: is_awaited.clone(),
        },
        nodes: Vec::new(),
    };
    let model = model.map(&mut planter);
    let announced = Announced {
        is_awaited,
        _nodes: planter.nodes,
    };
    (model, announced)
}

#[derive(Default)]
struct Learnable {
    count: usize,
}

impl<B: Backend> ModuleVisitor<B> for Learnable {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.count += usize::from(param.is_require_grad());
    }
}

/// Which learnable parameters are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::probe) enum Watched {
    /// The last one. The last layers use it. They are deep in any graph, so the depth of no other node changes.
    Last,
    /// All of them, for a model whose loss does not depend on the last one.
    All,
}

/// The function to call once, when autodiff goes backward.
type Began = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A bell that rings when autodiff goes backward: the function to call, and whether it is still awaited.
#[derive(Clone)]
struct Bell {
    began: Began,
    is_awaited: Arc<AtomicBool>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
    }
}

/// The bell in a graph. It rings if it is dropped while awaited; other clones of the bell do not ring.
#[derive(Debug)]
struct Planted(Bell);

impl Drop for Planted {
    fn drop(&mut self) {
        // autodiff may drop several planted nodes (`Watched::All`), and the phase begins with the first.
        if !self.0.is_awaited.swap(false, Ordering::Relaxed) {
            return;
        }
        // Take it out before the call, so that the lock is not held while the mark waits for Burn's threads.
        let began = self.0.began.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(began) = began {
            began();
        }
    }
}

impl Backward<ModelBackend, 1> for Planted {
    type State = ();

    /// Never called, because autodiff drops this node before it computes gradients.
    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}

/// The operation of a parameter. It computes nothing.
#[derive(Debug)]
struct Leaf;

impl Backward<ModelBackend, 1> for Leaf {
    type State = ();

    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}

struct Planter {
    /// The number of learnable parameters that are still to come.
    left: usize,
    watched: Watched,
    bell: Bell,
    nodes: Vec<Arc<NodeId>>,
}

impl<B: Backend> ModuleMapper<B> for Planter {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if !param.is_require_grad() {
            return param;
        }
        self.left -= 1;
        if self.left > 0 && self.watched == Watched::Last {
            return param;
        }
        param.map(|tensor| {
            let TensorPrimitive::Float(mut primitive) = tensor.into_primitive() else {
                unreachable!("quantized parameters are not learnable");
            };
            // Trainings run only on this backend, so the downcast succeeds.
            if let Some(tensor) = (&mut primitive as &mut dyn Any).downcast_mut::<TrackedTensor>() {
                self.nodes.extend(plant(tensor, self.bell.clone()));
            }
            Tensor::from_primitive(TensorPrimitive::Float(primitive))
        })
    }
}

/// Makes the bell's node the parameter's parent. Returns the handle that keeps that node alive.
fn plant(parameter: &mut TrackedTensor, bell: Bell) -> Option<Arc<NodeId>> {
    // New nodes have no other owners, so we can change them.
    let node = || Arc::try_unwrap(Tracked::from_inner(parameter.primitive.clone()).node);
    // If Burn ever shared new nodes, the step would only lack its backward phase.
    let (Ok(mut depth), Ok(mut link)) = (node(), node()) else {
        return None;
    };
    let requirement = parameter.node.requirement;
    let properties = parameter.node.properties.clone();
    // This node requires no gradient, so it is not part of the graph. It only provides its depth.
    depth.order = BELOW_EVERYTHING;
    let ringing = OpsPrep::<Planted, ModelBackend, (), NoCheckpointing, 1, WithState>::new(
        [Arc::new(depth)],
        requirement,
        Planted(bell),
        properties.clone(),
        Default::default(),
    )
    .finish((), parameter.primitive.clone());
    // To the graph, this is the same node as `ringing`, but without its depth.
    link.id = ringing.node.id;
    link.requirement = requirement;
    let leaf = OpsPrep::<Leaf, ModelBackend, (), NoCheckpointing, 1, UnTracked>::new(
        [Arc::new(link)],
        requirement,
        Leaf,
        properties,
        Default::default(),
    );
    // A leaf with the true depth on top: the layers above must not get the false depth.
    *parameter = leaf.finish(parameter.primitive.clone());
    Some(ringing.rc)
}
