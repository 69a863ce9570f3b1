//! The proof that a card computes: a kernel that is compiled and run, and what it came to.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use crate::survey_library::{Cuda, Failure, Nvrtc};
use crate::{Facts, until_nul, values};

const ROUNDS: u32 = 1000;
const MOST_PTX: usize = 1 << 20;
const KERNEL: &CStr = c"extern \"C\" __global__ void cargo_vram_proof(unsigned long long *out, unsigned long long seed)
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
    let ptx = compile(nvrtc, &capability)?;
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

/// The kernel as PTX, in the way that Burn has it compiled.
fn compile(nvrtc: &Nvrtc, capability: &str) -> Result<Vec<u8>, Failure> {
    let mut program: Handle = std::ptr::null_mut();
    let none: *const *const c_char = std::ptr::null();
    call!(*nvrtc, nvrtcCreateProgram(
        &mut program => *mut Handle, KERNEL.as_ptr() => *const c_char,
        c"cargo_vram_proof.cu".as_ptr() => *const c_char,
        0 => c_int, none => *const *const c_char, none => *const *const c_char
    ))?;
    let option = CString::new(format!("--gpu-architecture=sm_{capability}")).unwrap_or_default();
    let options = [option.as_ptr()];
    let compiled = call!(*nvrtc, nvrtcCompileProgram(
        program => Handle, 1 => c_int, options.as_ptr() => *const *const c_char
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
