//! Finds where autodiff goes backward in a step that is not ours to mark: Burn's `TrainStep` runs forward and backward in one
//! call.
//!
//! Before autodiff computes the first gradient, it walks its graph from the loss to the parameters, and sorts what it finds by
//! depth. A node that claims to be deeper than the loss has no place there, and is dropped on the way: that is the moment. So
//! one parameter gets such a node as its parent. The parameter's own tensor, gradient and requirements stay as they are, and
//! nothing is computed or allocated. Only Burn's public functions are used, though some of their types have no public name.

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

use super::{Chosen, Tracked};

/// A tensor of the backend that trainings run on.
type TrackedTensor = <Tracked as BackendTypes>::FloatTensorPrimitive;

/// Deeper than any graph.
const BELOW_EVERYTHING: usize = usize::MAX / 2;

/// A model whose backward phase is announced, as long as this is held.
pub(in crate::probe) struct Announced {
    is_awaited: Arc<AtomicBool>,
    /// Keeps the nodes that are dropped from being cleared away unseen.
    _nodes: Vec<Arc<NodeId>>,
}

impl Announced {
    /// Whether autodiff went backward.
    pub(in crate::probe) fn came(&self) -> bool {
        !self.is_awaited.load(Ordering::Relaxed)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // What is cleared away from now on is no backward phase.
        self.is_awaited.store(false, Ordering::Relaxed);
    }
}

/// Calls `began` when autodiff next goes backward from a loss of this model: on that thread, before the first gradient is computed.
///
/// It is not called where the loss depends on none of the parameters that are watched.
pub(in crate::probe) fn announce<B: AutodiffBackend, M: AutodiffModule<B>>(
    model: M,
    watched: Watched,
    began: impl FnOnce() + Send + 'static,
) -> (M, Announced) {
    let mut parameters = Learnable::default();
    model.visit(&mut parameters);
    let is_awaited = Arc::new(AtomicBool::new(true));
    let mut planter = Planter {
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

/// Which parameters are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::probe) enum Watched {
    /// The last learnable one. The last layers use it, which are deep in any graph: the depth of no other node changes.
    Last,
    /// All learnable ones, for a model whose loss does not depend on its last one.
    All,
}

/// What is called when autodiff goes backward, once.
type Began = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Rings when it is dropped while awaited.
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

/// The bell in a graph: only that one rings.
#[derive(Debug)]
struct Planted(Bell);

impl Drop for Planted {
    fn drop(&mut self) {
        if !self.0.is_awaited.swap(false, Ordering::Relaxed) {
            return;
        }
        let began = self.0.began.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(began) = began {
            began();
        }
    }
}

impl Backward<Chosen, 1> for Planted {
    type State = ();

    /// Never called: it has no place among what is computed.
    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}

/// A parameter: nothing is computed beyond it.
#[derive(Debug)]
struct Leaf;

impl Backward<Chosen, 1> for Leaf {
    type State = ();

    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}

struct Planter {
    /// Learnable parameters that are still to come.
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
            // The backend of trainings is this one alone.
            if let Some(tensor) = (&mut primitive as &mut dyn Any).downcast_mut::<TrackedTensor>() {
                self.nodes.extend(plant(tensor, self.bell.clone()));
            }
            Tensor::from_primitive(TensorPrimitive::Float(primitive))
        })
    }
}

/// Makes the bell's node the parameter's parent; returns what keeps that node.
fn plant(parameter: &mut TrackedTensor, bell: Bell) -> Option<Arc<NodeId>> {
    // Nodes that nobody else has, so that they may be changed.
    let node = || Arc::try_unwrap(Tracked::from_inner(parameter.primitive.clone()).node);
    let (Ok(mut depth), Ok(mut link)) = (node(), node()) else {
        return None;
    };
    let requirement = parameter.node.requirement;
    let properties = parameter.node.properties.clone();
    // It asks for no gradient, so it is no part of the graph: it only lends its depth.
    depth.order = BELOW_EVERYTHING;
    let ringing = OpsPrep::<Planted, Chosen, (), NoCheckpointing, 1, WithState>::new(
        [Arc::new(depth)],
        requirement,
        Planted(bell),
        properties.clone(),
        Default::default(),
    )
    .finish((), parameter.primitive.clone());
    // The same node to the graph, without its depth.
    link.id = ringing.node.id;
    link.requirement = requirement;
    let leaf = OpsPrep::<Leaf, Chosen, (), NoCheckpointing, 1, UnTracked>::new(
        [Arc::new(link)],
        requirement,
        Leaf,
        properties,
        Default::default(),
    );
    *parameter = leaf.finish(parameter.primitive.clone());
    Some(ringing.rc)
}
