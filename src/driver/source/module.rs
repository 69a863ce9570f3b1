//! Modules and their functions: entries read from PTX text, with the limits that a launch needs.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::abi::{
    Answer, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, In, NO_BINARY_FOR_GPU,
    NOT_FOUND, Out, Text, UNSUPPORTED_PTX_VERSION, ensure, fault,
};
use crate::handles::{Handles, lock};
use crate::ptx::{self, Target};
use crate::{clock, context, nvrtc, record};

pub(crate) struct Module {
    device: usize,
    entries: Vec<ptx::Entry>,
    /// The handle of each entry that was asked for; 0 before.
    functions: Vec<u64>,
    target: Target,
    version: (u32, u32),
}

#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) device: usize,
    pub(crate) name: Name,
    pub(crate) static_shared: u32,
    pub(crate) max_threads: u32,
    /// How long a launch takes by the virtual clock.
    pub(crate) nanoseconds: u64,
    /// What the program opted in to.
    pub(crate) max_dynamic_shared: u32,
    /// What its parameters point to; kept for good, as names are.
    pub(crate) parameters: &'static [Option<ptx::Element>],
    module: u64,
    target: Target,
    version: (u32, u32),
}

static MODULES: Handles<Module> = Handles::new(0x48);
static FUNCTIONS: Handles<Function> = Handles::new(0x49);
/// Every kernel name seen, once; a few hundred in a run, kept for the record.
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The name of each function of a real driver, by its handle.
static KERNELS: RwLock<BTreeMap<u64, Name>> = RwLock::new(BTreeMap::new());

/// A kernel's name, as a number that an atomic can hold.
#[derive(Clone, Copy)]
pub(crate) struct Name(pub(crate) u32);

impl Name {
    fn of(text: &str) -> Self {
        let mut names = lock(&NAMES);
        let known = names.iter().position(|name| *name == text);
        Self(known.unwrap_or_else(|| {
            names.push(String::from(text).leak());
            names.len() - 1
        }) as u32)
    }

    pub(crate) fn text(self) -> &'static str {
        lock(&NAMES)
            .get(self.0 as usize)
            .copied()
            .unwrap_or_default()
    }
}

/// The name of a real driver's function; `None` where it was not found by name.
#[inline]
pub(crate) fn kernel(handle: u64) -> Option<Name> {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    kernels.get(&handle).copied()
}

/// Counts a module that a real driver loaded.
fn loaded(image: Text) -> Answer {
    let source = image.source().unwrap_or_default();
    let entries = std::str::from_utf8(source).map_or(0, ptx::count_entries);
    record::module_loaded(source.len(), entries);
    Ok(())
}

#[inline]
pub(crate) fn function(handle: u64) -> Answer<Function> {
    FUNCTIONS
        .with(handle, |function| *function)
        .ok_or(fault(INVALID_HANDLE, "no_such_function"))
}

fn with<R>(module: u64, look: impl FnOnce(&mut Module) -> R) -> Answer<R> {
    MODULES
        .with(module, look)
        .ok_or(fault(INVALID_HANDLE, "no_such_module"))
}

pub(crate) fn forget(device: usize) {
    MODULES.retain(|module| module.device != device);
    FUNCTIONS.retain(|function| function.device != device);
}

/// Static shared memory past the limit fails in ptxas, so inside the driver's compiler.
fn load(out: Out<u64>, image: Text) -> Answer {
    let device = context::current()?;
    let card = context::card()?;
    let bytes = image.bytes()?;
    let text = std::str::from_utf8(bytes).map_err(|_| fault(INVALID_IMAGE, "not_text"))?;
    let image = ptx::parse(text).ok_or(fault(INVALID_PTX, "not_ptx"))?;
    let newest = nvrtc::ptx_version(card.driver_version / 1000, card.driver_version % 1000 / 10);
    ensure(
        image.version <= newest,
        UNSUPPORTED_PTX_VERSION,
        "ptx_newer_than_driver",
    )?;
    let same_major = !image.binary || image.target.capability.0 == card.compute_capability.0;
    let runs = image.target.runs_on(card.compute_capability) && same_major;
    let wrong = if image.binary {
        NO_BINARY_FOR_GPU
    } else {
        INVALID_PTX
    };
    ensure(runs, wrong, "target_does_not_run_on_this_card")?;
    let limit = u64::from(card.shared_per_block);
    let fits = image
        .entries
        .iter()
        .all(|entry| entry.static_shared <= limit);
    ensure(fits, INVALID_PTX, "static_shared_memory")?;
    ensure(out.address() != 0, INVALID_VALUE, "null_result")?;
    record::module_loaded(bytes.len(), image.entries.len());
    out.set(MODULES.insert(Module {
        device,
        functions: vec![0; image.entries.len()],
        entries: image.entries,
        target: image.target,
        version: image.version,
    }))
}

fn find(module: u64, index: impl FnOnce(&Module) -> Option<usize>) -> Answer<u64> {
    let threads = context::card()?.max_threads_per_block;
    let default_shared = context::card()?.shared_per_block;
    with(module, |found| {
        let index = index(found).ok_or(fault(NOT_FOUND, "no_such_kernel"))?;
        let entry = &found.entries[index];
        if found.functions[index] == 0 {
            let static_shared = entry.static_shared as u32;
            found.functions[index] = FUNCTIONS.insert(Function {
                device: found.device,
                name: Name::of(&entry.name),
                static_shared,
                max_threads: entry
                    .max_threads
                    .map_or(threads, |bound| bound.min(threads)),
                nanoseconds: clock::launch_nanoseconds(&entry.name),
                max_dynamic_shared: default_shared - static_shared,
                parameters: entry.parameters.clone().leak(),
                module,
                target: found.target,
                version: found.version,
            });
        }
        Ok(found.functions[index])
    })?
}

const MAX_DYNAMIC_SHARED: c_uint = 8;
const PREFERRED_CARVEOUT: c_uint = 9;

fn set_attribute(handle: u64, attribute: c_uint, value: c_int) -> Answer {
    context::current()?;
    let card = context::card()?;
    let found = function(handle)?;
    match attribute {
        MAX_DYNAMIC_SHARED => {
            let value = u32::try_from(value).map_err(|_| fault(INVALID_VALUE, "shared_memory"))?;
            let limit = card
                .shared_per_block_optin
                .saturating_sub(found.static_shared);
            ensure(
                value <= limit,
                INVALID_VALUE,
                "shared_memory_past_the_opt_in",
            )?;
            FUNCTIONS.with(handle, |function| function.max_dynamic_shared = value);
            Ok(())
        }
        PREFERRED_CARVEOUT => ensure((-1..=100).contains(&value), INVALID_VALUE, "carveout"),
        // Cluster sizes and scheduling: no launch here depends on them.
        11..=15 => Ok(()),
        _ => Err(fault(INVALID_VALUE, "function_attribute")),
    }
}

fn attribute(handle: u64, attribute: c_uint) -> Answer<c_int> {
    let found = function(handle)?;
    let number = |(major, minor): (u32, u32)| (major * 10 + minor) as c_int;
    Ok(match attribute {
        0 => found.max_threads as c_int,
        1 => found.static_shared as c_int,
        // Constant and local memory: nothing is known of the body.
        2 | 3 => 0,
        // Assumed: a kernel's registers are known to a compiler alone.
        4 => 32,
        5 => number(found.version),
        6 => number(found.target.capability),
        7 => 0,
        MAX_DYNAMIC_SHARED => found.max_dynamic_shared as c_int,
        PREFERRED_CARVEOUT => -1,
        10..=15 => 0,
        _ => return Err(fault(INVALID_VALUE, "function_attribute")),
    })
}

driver_functions! {
    fn cuModuleLoadData(module: Out<u64>, image: Text) {
        load(module, image)
    } forward(real) {
        real()?;
        loaded(image)
    }

    fn cuModuleLoadDataEx(
        module: Out<u64>,
        image: Text,
        _count: c_uint,
        _options: In<c_uint>,
        _values: In<u64>,
    ) {
        load(module, image)
    } forward(real) {
        real()?;
        loaded(image)
    }

    fn cuModuleLoadFatBinary(module: Out<u64>, image: Text) {
        load(module, image)
    } forward(real) {
        real()?;
        loaded(image)
    }

    fn cuModuleUnload(module: u64) {
        context::current()?;
        MODULES.remove(module).ok_or(fault(INVALID_HANDLE, "no_such_module"))?;
        FUNCTIONS.retain(|function| function.module != module);
        Ok(())
    }

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: Text) {
        context::current()?;
        let name = name.bytes()?;
        let named = |entry: &ptx::Entry| entry.name.as_bytes() == name;
        function.set(find(module, |module| module.entries.iter().position(named))?)
    } forward(real) {
        real()?;
        if let (Some(handle), Ok(name)) = (function.written(), name.bytes()) {
            let name = Name::of(&String::from_utf8_lossy(name));
            let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
            kernels.insert(handle, name);
        }
        Ok(())
    }

    fn cuModuleGetFunctionCount(count: Out<c_uint>, module: u64) {
        count.set(with(module, |module| module.entries.len())? as c_uint)
    }

    fn cuModuleEnumerateFunctions(functions: Out<u64>, count: c_uint, module: u64) {
        let there = with(module, |module| module.entries.len())?;
        let mut handles = Vec::new();
        for index in 0..there.min(count as usize) {
            handles.extend(find(module, |_| Some(index))?.to_ne_bytes());
        }
        functions.fill(&handles)
    }

    fn cuModuleGetGlobal_v2(_address: Out<u64>, _bytes: Out<usize>, module: u64, _name: Text) {
        with(module, |_| ())?;
        // Globals are not read from PTX.
        Err(fault(NOT_FOUND, "no_such_global"))
    }

    fn cuModuleGetLoadingMode(mode: Out<c_uint>) {
        context::card()?;
        // Lazy, the default since CUDA 12.2.
        mode.set(2)
    }

    fn cuFuncSetAttribute(function: u64, attribute: c_uint, value: c_int) {
        set_attribute(function, attribute, value)
    }

    fn cuFuncGetAttribute(value: Out<c_int>, which: c_uint, function: u64) {
        value.set(attribute(function, which)?)
    }

    fn cuFuncSetCacheConfig(handle: u64, _config: c_uint) {
        function(handle).map(|_| ())
    }

    fn cuFuncSetSharedMemConfig(handle: u64, _config: c_uint) {
        function(handle).map(|_| ())
    }

    fn cuFuncGetModule(module: Out<u64>, handle: u64) {
        module.set(function(handle)?.module)
    }

    fn cuFuncGetName(name: Out<*const c_void>, handle: u64) {
        let text = function(handle)?.name.text();
        // A C text of its own, kept for good: the caller may hold on to it.
        let bytes: &'static [u8] = [text.as_bytes(), &[0]].concat().leak();
        name.set(bytes.as_ptr().cast())
    }

    fn cuFuncLoad(handle: u64) {
        function(handle).map(|_| ())
    }

    fn cuFuncIsLoaded(state: Out<c_uint>, handle: u64) {
        function(handle)?;
        state.set(1)
    }
}
