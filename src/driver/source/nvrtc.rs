//! NVRTC: "compiles" a source into PTX that names its kernels and has no code.
//!
//! Only options are refused, as the real compiler of that version refuses them; whether a kernel
//! would compile, and how many registers it takes, is assumed.

use std::ffi::{c_char, c_int};

use crate::abi::{Answer, CUresult, Fault, In, Out, SUCCESS, Text, fault, recorded};
use crate::call::{Call, Turn};
use crate::handles::Handles;
use crate::ptx::{self, Entry, Target, TargetKind};
use crate::{context, record, source_scan};

const INVALID_INPUT: CUresult = 3;
const INVALID_PROGRAM: CUresult = 4;
const INVALID_OPTION: CUresult = 5;
const COMPILATION: CUresult = 6;
const NO_NAMES_AFTER_COMPILATION: CUresult = 8;
const NO_NAMES_BEFORE_COMPILATION: CUresult = 9;
const NAME_NOT_VALID: CUresult = 10;

struct Program {
    entries: Vec<Entry>,
    /// Each name expression, kept with the NUL that C wants.
    names: Vec<Vec<u8>>,
    log: String,
    compiled: Option<Compiled>,
}

struct Compiled {
    ptx: String,
    /// Where a real architecture was asked for.
    cubin: Option<String>,
}

static PROGRAMS: Handles<Program> = Handles::new(0x4a);

/// The architectures that a version compiles for.
fn architectures((major, minor): (i32, i32)) -> &'static [c_int] {
    match (major, minor) {
        (..=11, _) => &[
            35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90,
        ],
        (12, ..=7) => &[50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90],
        (12, 8) => &[
            50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120,
        ],
        (12, _) => &[
            50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121,
        ],
        _ => &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121],
    }
}

/// The PTX version that a CUDA version writes and its driver reads.
pub(crate) fn ptx_version(major: c_int, minor: c_int) -> (u32, u32) {
    let minor = minor.max(0) as u32;
    match (major, minor) {
        (..=10, _) => (6, 5),
        (11, _) => (7, minor),
        (12, ..=5) => (8, minor),
        (12, 6..) => (8, minor - 1),
        _ => (9, minor),
    }
}

fn version() -> (c_int, c_int) {
    context::configured().map_or((13, 0), |card| card.nvrtc_version)
}

fn with<R>(program: u64, look: impl FnOnce(&mut Program) -> Answer<R>) -> Answer<R> {
    PROGRAMS
        .with(program, look)
        .unwrap_or(Err(fault(INVALID_PROGRAM, "no_such_program")))
}

/// The architecture that an option asks for, if it is that option.
fn architecture(option: &str) -> Option<&str> {
    [
        "--gpu-architecture=",
        "-arch=",
        "--gpu-architecture ",
        "-arch ",
    ]
    .iter()
    .find_map(|prefix| option.strip_prefix(prefix))
}

struct Chosen<'option> {
    name: &'option str,
    real: bool,
}

fn choose<'option>(options: &[&'option str]) -> Result<Chosen<'option>, String> {
    let asked = options.iter().enumerate().find_map(|(index, option)| {
        let apart = matches!(*option, "--gpu-architecture" | "-arch");
        if apart {
            options.get(index + 1).copied()
        } else {
            architecture(option)
        }
    });
    let known = architectures(version());
    let Some(asked) = asked else {
        let default = if known.contains(&52) { "52" } else { "75" };
        return Ok(Chosen {
            name: default,
            real: false,
        });
    };
    let refusal = || {
        Err(format!(
            "nvrtc: error: invalid value for --gpu-architecture (-arch): '{asked}'\n"
        ))
    };
    let real = asked.strip_prefix("sm_");
    let Some(name) = real.or_else(|| asked.strip_prefix("compute_")) else {
        return refusal();
    };
    let Some(target) = Target::parse(name) else {
        return refusal();
    };
    let number = (target.capability.0 * 10 + target.capability.1) as c_int;
    let first_specific = if target.kind == TargetKind::Family {
        100
    } else {
        90
    };
    let has_kind = target.kind == TargetKind::Portable || number >= first_specific;
    if !known.contains(&number) || !has_kind {
        return refusal();
    }
    Ok(Chosen {
        name,
        real: real.is_some(),
    })
}

fn compile(program: &mut Program, options: &[&str]) -> Answer {
    let chosen = match choose(options) {
        Ok(chosen) => chosen,
        Err(log) => {
            program.log = log;
            return Err(fault(INVALID_OPTION, "gpu_architecture"));
        }
    };
    let (major, minor) = version();
    let target = format!("sm_{}", chosen.name);
    let image = |binary| ptx::write(ptx_version(major, minor), &target, &program.entries, binary);
    program.compiled = Some(Compiled {
        ptx: image(false),
        cubin: chosen.real.then(|| image(true)),
    });
    program.log.clear();
    Ok(())
}

/// The most characters of a compiler's log that the record keeps.
const LONGEST_LOG: usize = 300;

/// Records a failure of the real compiler with what it said.
#[cold]
fn with_log(program: u64, fault: Fault) -> Fault {
    let mut bytes = 0;
    let size = ask!(nvrtcGetProgramLogSize(program => u64, Out::to(&mut bytes) => Out<usize>));
    if size != Some(SUCCESS) || bytes <= 1 {
        return fault;
    }
    let mut log = vec![0_u8; bytes];
    let out = Out::to_all(&mut log);
    if ask!(nvrtcGetProgramLog(program => u64, out => Out<u8>)) != Some(SUCCESS) {
        return fault;
    }
    let log = String::from_utf8_lossy(&log);
    let log = log.trim_end_matches('\0').trim();
    let end = log
        .char_indices()
        .nth(LONGEST_LOG)
        .map_or(log.len(), |(end, _)| end);
    record::error("nvrtcCompileProgram", fault.code, &log[..end]);
    recorded(fault.code)
}

fn not_compiled() -> Fault {
    fault(INVALID_PROGRAM, "not_compiled")
}

/// What of a compiled program is asked for.
type Part = fn(&Compiled) -> Option<&String>;
const PTX: Part = |compiled| Some(&compiled.ptx);
const CUBIN: Part = |compiled| compiled.cubin.as_ref();

fn size(program: u64, part: Part, bytes: Out<usize>) -> Answer {
    with(program, |program| {
        let compiled = program.compiled.as_ref().ok_or(not_compiled())?;
        bytes.set(part(compiled).map_or(0, |text| text.len() + 1))
    })
}

fn give(program: u64, part: Part, out: Out<u8>) -> Answer {
    with(program, |program| {
        let compiled = program.compiled.as_ref().ok_or(not_compiled())?;
        let text = part(compiled).ok_or(fault(INVALID_PROGRAM, "no_cubin"))?;
        out.fill(&[text.as_bytes(), &[0]].concat())
    })
}

driver_functions! {
    fn nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) {
        let (of_major, of_minor) = version();
        major.set(of_major).and_then(|()| minor.set(of_minor)).map_err(as_input)
    }

    fn nvrtcGetNumSupportedArchs(count: Out<c_int>) {
        count.set(architectures(version()).len() as c_int).map_err(as_input)
    }

    fn nvrtcGetSupportedArchs(out: Out<c_int>) {
        let known = architectures(version());
        let bytes: Vec<u8> = known.iter().flat_map(|known| known.to_ne_bytes()).collect();
        out.fill(&bytes).map_err(as_input)
    }

    fn nvrtcCreateProgram(
        program: Out<u64>,
        source: Text,
        _name: Text,
        _headers: c_int,
        _header_sources: In<Text>,
        _header_names: In<Text>,
    ) {
        let source = source.bytes().map_err(as_input)?;
        if program.address() == 0 {
            return Err(fault(INVALID_INPUT, "null_result"));
        }
        // The source itself is not kept: programs are often never destroyed.
        let entries = source_scan::entries(source);
        let names = Vec::new();
        program.set(PROGRAMS.insert(Program { entries, names, log: String::new(), compiled: None }))
    }

    fn nvrtcDestroyProgram(program: Out<u64>) {
        if program.address() == 0 {
            return Err(fault(INVALID_PROGRAM, "null_program"));
        }
        let handle = program.replace(0);
        PROGRAMS.remove(handle).map(|_| ()).ok_or(fault(INVALID_PROGRAM, "no_such_program"))
    }

    fn nvrtcCompileProgram(program: u64, count: c_int, options: In<Text>) {
        let mut texts = Vec::new();
        for index in 0..count.max(0) as usize {
            let option = options.at(index).and_then(Text::bytes).map_err(as_input)?;
            texts.push(str::from_utf8(option).unwrap_or_default());
        }
        with(program, |program| compile(program, &texts))
    } forward(real) {
        real().map_err(|fault| with_log(program, fault))
    }

    fn nvrtcAddNameExpression(program: u64, name: Text) {
        let name = name.bytes().map_err(as_input)?;
        with(program, |program| {
            if program.compiled.is_some() {
                return Err(fault(NO_NAMES_AFTER_COMPILATION, "already_compiled"));
            }
            let text = String::from_utf8_lossy(name).into_owned();
            if !program.entries.iter().any(|entry| entry.name == text) {
                program.entries.push(Entry { name: text, ..Entry::default() });
            }
            program.names.push([name, &[0]].concat());
            Ok(())
        })
    }

    fn nvrtcGetLoweredName(program: u64, name: Text, lowered: Out<*const c_char>) {
        let name = name.bytes().map_err(as_input)?;
        with(program, |program| {
            if program.compiled.is_none() {
                return Err(fault(NO_NAMES_BEFORE_COMPILATION, "not_compiled"));
            }
            let same = |known: &&Vec<u8>| known.strip_suffix(&[0]) == Some(name);
            let known = program.names.iter().find(same);
            lowered.set(known.ok_or(fault(NAME_NOT_VALID, "no_such_name"))?.as_ptr().cast())
        })
    }

    fn nvrtcGetPTXSize(program: u64, bytes: Out<usize>) { size(program, PTX, bytes) }
    fn nvrtcGetPTX(program: u64, text: Out<u8>) { give(program, PTX, text) }
    fn nvrtcGetCUBINSize(program: u64, bytes: Out<usize>) { size(program, CUBIN, bytes) }
    fn nvrtcGetCUBIN(program: u64, image: Out<u8>) { give(program, CUBIN, image) }

    fn nvrtcGetProgramLogSize(program: u64, bytes: Out<usize>) {
        with(program, |program| bytes.set(program.log.len() + 1))
    }

    fn nvrtcGetProgramLog(program: u64, log: Out<u8>) {
        with(program, |program| log.fill(&[program.log.as_bytes(), &[0]].concat()))
    }
}

/// A bad pointer, in NVRTC's words.
fn as_input(error: Fault) -> Fault {
    fault(INVALID_INPUT, error.detail)
}

/// NVRTC's sentence for a code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvrtcGetErrorString(code: CUresult) -> *const c_char {
    static CALL: Call = Call::new("nvrtcGetErrorString\0");
    if let Turn::Forward = CALL.enter()
        && let Ok(address) = CALL.real()
    {
        // SAFETY: the real library's function of this name, whose signature is NVRTC's.
        let real: extern "C" fn(CUresult) -> *const c_char =
            unsafe { std::mem::transmute(address) };
        return real(code);
    }
    let name = match code {
        0 => c"NVRTC_SUCCESS",
        1 => c"NVRTC_ERROR_OUT_OF_MEMORY",
        2 => c"NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        7 => c"NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        NO_NAMES_AFTER_COMPILATION => c"NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        NO_NAMES_BEFORE_COMPILATION => c"NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        NAME_NOT_VALID => c"NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        11 => c"NVRTC_ERROR_INTERNAL_ERROR",
        _ => c"NVRTC_ERROR unknown",
    };
    name.as_ptr()
}
