//! Writes the lines of a trace. Frequent lines are formatted without serde, because users may build this crate, and
//! serde's generic code with it, unoptimized. The standard library, which formats the numbers, is always optimized.

use std::fmt::{Display, Result, Write};

use crate::protocol::{HeldTensor, Made, Traced};

/// Writes a line as serde would. The names of Burn's operations and of element types need no escapes.
pub(super) fn write(what: &Traced, to: &mut String) -> Result {
    // The output must equal serde's, because the tool reads it with serde. The test below compares both.
    // See docs/design/speed.md.
    match what {
        Traced::Operation {
            name,
            inputs,
            outputs,
            stack,
        } => {
            let is_plain = name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_:.-".contains(&byte));
            if is_plain {
                write!(to, r#"{{"t":"operation","name":"{name}","inputs":"#)?;
            } else {
                // Users choose the names of their own operations, so these may need escapes.
                let name = serde_json::Value::from(name.as_str());
                write!(to, r#"{{"t":"operation","name":{name},"inputs":"#)?;
            }
            list(inputs, to)?;
            to.push_str(r#","outputs":"#);
            objects(outputs, to, made)?;
            write!(to, r#","stack":{stack}}}"#)
        }
        Traced::Sample { time, live, kernel } => {
            write!(to, r#"{{"t":"sample","time":{time},"live":{live},"kernel":"#)?;
            match kernel {
                Some(kernel) => write!(to, "{kernel}}}"),
                None => write!(to, "null}}"),
            }
        }
        Traced::Allocated { memory, bytes } => {
            write!(to, r#"{{"t":"allocated","memory":{memory},"bytes":{bytes}}}"#)
        }
        Traced::Look {
            after,
            steps,
            came,
            gone,
        } => {
            write!(to, r#"{{"t":"look","after":{after},"steps":{steps},"came":"#)?;
            objects(came, to, held)?;
            to.push_str(r#","gone":"#);
            list(gone, to)?;
            to.push('}');
            Ok(())
        }
        Traced::Ran {
            made: all,
            freed,
            inner,
        } => {
            to.push_str(r#"{"t":"ran","made":"#);
            list(all, to)?;
            to.push_str(r#","freed":"#);
            list(freed, to)?;
            to.push_str(r#","inner":"#);
            objects(inner, to, made)?;
            to.push('}');
            Ok(())
        }
        // The other kinds are rare. They may have any text in them, which serde escapes.
        _ => {
            let line = serde_json::to_string(what).map_err(|_| std::fmt::Error)?;
            to.push_str(&line);
            Ok(())
        }
    }
}

fn made(made: &Made, to: &mut String) -> Result {
    write!(to, r#"{{"id":{},"shape":"#, made.id)?;
    list(&made.shape, to)?;
    write!(to, r#","dtype":"{}","bytes":{}}}"#, made.dtype, made.bytes)
}

fn held(held: &HeldTensor, to: &mut String) -> Result {
    write!(to, r#"{{"tensor":{},"memory":{}}}"#, held.tensor, held.memory)
}

fn list<T: Display>(all: &[T], to: &mut String) -> Result {
    objects(all, to, |one, to| write!(to, "{one}"))
}

fn objects<T>(all: &[T], to: &mut String, write: impl Fn(&T, &mut String) -> Result) -> Result {
    to.push('[');
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            to.push(',');
        }
        write(one, to)?;
    }
    to.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Frame, Phase};

    fn made(id: u64, shape: &[u64]) -> Made {
        Made {
            id,
            shape: shape.to_vec(),
            dtype: "f32".to_owned(),
            bytes: 4,
        }
    }

    #[test]
    fn lines_are_as_serde_writes_them() {
        let held = |tensor| HeldTensor { tensor, memory: 9 };
        let lines = [
            Traced::Operation {
                name: "float_add".to_owned(),
                inputs: vec![1, 2],
                outputs: vec![made(3, &[2, 4]), made(u64::MAX, &[])],
                stack: 7,
            },
            Traced::Operation {
                name: "a \"name\" with \\ and \n".to_owned(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                stack: 0,
            },
            Traced::Operation {
                name: "float_ones".to_owned(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                stack: 0,
            },
            Traced::Sample {
                time: 1,
                live: 2,
                kernel: Some(3),
            },
            Traced::Sample {
                time: 1,
                live: 2,
                kernel: None,
            },
            Traced::Allocated { memory: 1, bytes: 2 },
            Traced::Look {
                after: 1,
                steps: 2,
                came: vec![held(1), held(2)],
                gone: vec![5],
            },
            Traced::Ran {
                made: vec![1, 2],
                freed: vec![3],
                inner: vec![made(2, &[1])],
            },
            Traced::Marked {
                step: None,
                phase: Phase::Model,
            },
            Traced::Stack {
                stack: 0,
                frames: vec![Frame { address: 1, stack: 2 }],
            },
        ];
        for line in &lines {
            let mut written = String::new();
            write(line, &mut written).expect("a line can be written");
            assert_eq!(written, serde_json::to_string(line).expect("a line can be written"));
        }
    }
}
