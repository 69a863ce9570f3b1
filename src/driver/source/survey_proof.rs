//! The proof that a card computes: a kernel that is compiled and run, and what it came to.

use std::ffi::{CString, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use crate::survey_library::{Cuda, Failure, Nvrtc};
use crate::{Facts, until_nul, values};

const ROUNDS: u32 = 1000;
const MOST_PTX: usize = 1 << 20;
/// What Burn's kernels include: all of them the first, those with half precision the second. A header that one of these
/// needs and that is not there stops the proof, and so is found before a model runs.
const INCLUDES: &str = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n";
const KERNEL: &str = "extern \"C\" __global__ void cargo_vram_proof(unsigned long long *out, unsigned long long seed)
{
    unsigned long long x = seed;
    for (int round = 0; round < 1000; ++round) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    }
    *out = x;
}
";

fn expected(seed: u64) -> u64 {
    (0..ROUNDS).fold(seed, |x, _| {
        x.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    })
}

type Handle = *mut c_void;

/// Runs a kernel on the first card, and tells what it computed.
pub(crate) fn prove(
    cuda: &Cuda,
    nvrtc: Option<&Nvrtc>,
    seed: u64,
    headers: Option<&OsString>,
    facts: &mut Facts,
) -> Result<(), Failure> {
    let mut device: c_int = 0;
    call!(*cuda, cuDeviceGet(&mut device => *mut c_int, 0 => c_int))?;
    let mut context: Handle = std::ptr::null_mut();
    call!(*cuda, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, device => c_int))?;
    call!(*cuda, cuCtxSetCurrent(context => Handle))?;
    let (mut free, mut total): (usize, usize) = (0, 0);
    call!(*cuda, cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize))?;
    facts.write(&format!("context ordinal=0 free={free} total={total}"));

    let nvrtc = nvrtc.ok_or(Failure {
        function: "dlopen",
        code: 0,
        name: String::new(),
        detail: "no NVRTC: nothing can be compiled".to_owned(),
    })?;
    let capability = values(cuda, device, &[75, 76])?.replace(',', "");
    let ptx = compile(nvrtc, &capability, headers)?;
    let mut module: Handle = std::ptr::null_mut();
    call!(*cuda, cuModuleLoadData(&mut module => *mut Handle, ptx.as_ptr() => *const u8))?;
    let mut kernel: Handle = std::ptr::null_mut();
    call!(*cuda, cuModuleGetFunction(
        &mut kernel => *mut Handle, module => Handle, c"cargo_vram_proof".as_ptr() => *const c_char
    ))?;
    let mut out: u64 = 0;
    call!(*cuda, cuMemAlloc_v2(&mut out => *mut u64, size_of::<u64>() => usize))?;
    let (mut out_argument, mut seed_argument) = (out, seed);
    let mut arguments: [*mut u64; 2] = [&mut out_argument, &mut seed_argument];
    let none: Handle = std::ptr::null_mut();
    call!(*cuda, cuLaunchKernel(
        kernel => Handle,
        1 => c_uint, 1 => c_uint, 1 => c_uint,
        1 => c_uint, 1 => c_uint, 1 => c_uint,
        0 => c_uint, none => Handle, arguments.as_mut_ptr() => *mut *mut u64, none => Handle,
    ))?;
    call!(*cuda, cuCtxSynchronize())?;
    let mut computed: u64 = 0;
    call!(*cuda, cuMemcpyDtoH_v2(&mut computed => *mut u64, out => u64, size_of::<u64>() => usize))?;
    let expected = expected(seed);
    facts.write(&format!(
        "proof ordinal=0 seed={seed} expected={expected} computed={computed}"
    ));
    // Given back in order; by now a refusal would change nothing.
    let _ = call!(*cuda, cuMemFree_v2(out => u64));
    let _ = call!(*cuda, cuModuleUnload(module => Handle));
    let _ = call!(*cuda, cuDevicePrimaryCtxRelease_v2(device => c_int));
    Ok(())
}

/// The options that Burn compiles its kernels with (cubecl-cuda 0.10, `compute/context.rs`).
fn options(capability: &str, headers: Option<&OsString>) -> Vec<CString> {
    // From 9.0 on, kernels are for the very architecture.
    let specific = if capability.parse().unwrap_or(0) >= 90 {
        "a"
    } else {
        ""
    };
    let mut options = vec![format!("--gpu-architecture=sm_{capability}{specific}").into_bytes()];
    let include =
        |folder: &OsString| [b"--include-path=", folder.clone().into_vec().as_slice()].concat();
    options.extend(headers.map(include));
    options.push(b"-lineinfo".to_vec());
    let cccl = headers.map(|headers| Path::new(headers).join("cccl"));
    options.extend(
        cccl.filter(|folder| folder.exists())
            .map(|folder| include(&folder.into())),
    );
    // A path from a command line has no NUL in it.
    options
        .into_iter()
        .filter_map(|option| CString::new(option).ok())
        .collect()
}

/// The kernel as PTX, in the way that Burn has it compiled.
fn compile(
    nvrtc: &Nvrtc,
    capability: &str,
    headers: Option<&OsString>,
) -> Result<Vec<u8>, Failure> {
    let includes = if headers.is_some() { INCLUDES } else { "" };
    let source = CString::new(format!("{includes}{KERNEL}")).unwrap_or_default();
    let mut program: Handle = std::ptr::null_mut();
    let none: *const *const c_char = std::ptr::null();
    call!(*nvrtc, nvrtcCreateProgram(
        &mut program => *mut Handle, source.as_ptr() => *const c_char,
        c"cargo_vram_proof.cu".as_ptr() => *const c_char,
        0 => c_int, none => *const *const c_char, none => *const *const c_char
    ))?;
    let options = options(capability, headers);
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let compiled = call!(*nvrtc, nvrtcCompileProgram(
        program => Handle, options.len() as c_int => c_int, options.as_ptr() => *const *const c_char
    ));
    if let Err(mut failure) = compiled {
        let mut size: usize = 0;
        let sized =
            call!(*nvrtc, nvrtcGetProgramLogSize(program => Handle, &mut size => *mut usize));
        let mut log = vec![0_u8; size.min(1 << 20)];
        if sized.is_ok() && size == log.len() {
            let _ =
                call!(*nvrtc, nvrtcGetProgramLog(program => Handle, log.as_mut_ptr() => *mut u8));
        }
        failure.detail = String::from_utf8_lossy(&until_nul(&log)).into_owned();
        return Err(failure);
    }
    let mut size: usize = 0;
    call!(*nvrtc, nvrtcGetPTXSize(program => Handle, &mut size => *mut usize))?;
    if size > MOST_PTX {
        return Err(Failure {
            function: "nvrtcGetPTXSize",
            code: 0,
            name: String::new(),
            detail: format!("a kernel of a few lines takes {size} bytes"),
        });
    }
    let mut ptx = vec![0_u8; size + 1];
    call!(*nvrtc, nvrtcGetPTX(program => Handle, ptx.as_mut_ptr() => *mut u8))?;
    let _ = call!(*nvrtc, nvrtcDestroyProgram(&mut program => *mut Handle));
    Ok(ptx)
}
