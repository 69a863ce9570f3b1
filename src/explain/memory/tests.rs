//! Compares the fast version with the slow one on random traces, and checks that it is fast.

use proptest::prelude::*;

use super::oracle;
use super::*;
use crate::protocol::Made;

/// One part of a random trace. Numbers are taken modulo the number of existing things.
#[derive(Debug, Clone)]
enum Thing {
    /// Bytes, in units of the alignment or nearly.
    Allocated(u64),
    /// The difference between live and the bytes of the pieces that exist by an invented rule.
    Sample(i64),
    /// The sizes of the tensors that are made, and the tensors that are freed.
    Ran(Vec<u64>, Vec<u64>),
    /// The tensors that come, each with a piece, and the tensors that go.
    Look(Vec<(u64, u64)>, Vec<u64>),
}

fn thing() -> impl Strategy<Value = Thing> {
    let size = prop_oneof![3 => 0_u64..6, 2 => 0_u64..200, 1 => 0_u64..100_000];
    let tensors = || prop::collection::vec(0_u64..60, 0..6);
    prop_oneof![
        5 => size.clone().prop_map(Thing::Allocated),
        5 => prop_oneof![4 => Just(0_i64), 2 => -4_i64..4, 1 => -3000_i64..3000].prop_map(Thing::Sample),
        2 => (prop::collection::vec(size, 0..4), tensors()).prop_map(|(made, freed)| Thing::Ran(made, freed)),
        1 => (prop::collection::vec((0_u64..60, 0_u64..40), 0..6), tensors())
            .prop_map(|(came, gone)| Thing::Look(came, gone)),
    ]
}

/// Returns a trace of these parts. Live is what was allocated minus what was freed by chance, so sums mostly match.
fn trace(things: &[Thing], unit: u64, alignment: u64, freed: &[bool]) -> ReadTrace {
    let mut trace = ReadTrace {
        alignment,
        ..ReadTrace::default()
    };
    let (mut there, mut live, mut numbers) = (Vec::new(), 0_i64, 0);
    let mut freed = freed.iter().cycle();
    for thing in things {
        trace.happened.push(match thing {
            Thing::Allocated(size) => {
                numbers += 1;
                let bytes = size * unit;
                there.push(bytes.next_multiple_of(alignment.max(1)));
                live += i64::try_from(*there.last().unwrap()).unwrap();
                Happened::Allocated {
                    memory: numbers % 40,
                    bytes,
                }
            }
            Thing::Sample(off) => {
                // Each piece goes at some sample, in any order.
                there.retain(|bytes| {
                    let stays = *freed.next().unwrap();
                    if !stays {
                        live -= i64::try_from(*bytes).unwrap();
                    }
                    stays
                });
                Happened::Sample {
                    time: 0,
                    live: u64::try_from(live + off * 100).unwrap_or(0),
                    kernel: None,
                }
            }
            Thing::Ran(sizes, freed) => {
                let made: Vec<u64> = (0..sizes.len() as u64).map(|at| (numbers + at) % 60).collect();
                trace.inner.extend(made.iter().zip(sizes).map(|(id, size)| Made {
                    id: *id,
                    shape: Vec::new(),
                    dtype: String::new(),
                    bytes: size * unit,
                }));
                Happened::Ran {
                    made,
                    freed: freed.clone(),
                }
            }
            Thing::Look(came, gone) => Happened::Look {
                steps: 1,
                after: numbers,
                came: came
                    .iter()
                    .map(|(tensor, memory)| HeldTensor {
                        tensor: *tensor,
                        memory: *memory,
                    })
                    .collect(),
                gone: gone.clone(),
            },
        });
    }
    trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_fast_way_finds_out_what_the_slow_one_does(
        things in prop::collection::vec(thing(), 0..120),
        unit in prop_oneof![Just(1_u64), Just(512), Just(1000)],
        alignment in prop_oneof![Just(0_u64), Just(512)],
        freed in prop::collection::vec(prop::bool::weighted(0.7), 1..200),
    ) {
        let trace = trace(&things, unit, alignment, &freed);
        prop_assert_eq!(MemoryHistory::from_trace(&trace), oracle::memory(&trace));
    }
}

/// Returns a trace without looks, such as that of a model without fusion: `count` pieces of a few sizes, of which a
/// quarter exist at once.
fn without_looks(count: usize) -> ReadTrace {
    let mut trace = ReadTrace {
        alignment: 512,
        ..ReadTrace::default()
    };
    let size = |number: usize| 512 * (1 + (number * 7919) % 97) as u64;
    let mut live = 0;
    for number in 0..count {
        trace.happened.push(Happened::Allocated {
            memory: number as u64,
            bytes: size(number),
        });
        live += size(number);
        if number >= count / 4 {
            live -= size(number - count / 4);
        }
        trace.happened.push(Happened::Sample {
            time: number as u64,
            // Burn's account is off by some bytes, so sums do not match.
            live: live - (number % 3) as u64 * 100,
            kernel: None,
        });
    }
    trace
}

#[test]
fn a_trace_without_looks_is_read_as_the_slow_way_reads_it() {
    let trace = without_looks(400);
    assert_eq!(MemoryHistory::from_trace(&trace), oracle::memory(&trace));
}

/// A benchmark: `cargo test --release --lib explain::memory -- --ignored --nocapture`.
#[test]
#[ignore = "a benchmark, which prints how long it takes"]
fn a_million_allocations() {
    let trace = without_looks(1_000_000);
    let began = std::time::Instant::now();
    let memory = MemoryHistory::from_trace(&trace);
    let died = memory.pieces.iter().filter(|piece| piece.died.is_some()).count();
    eprintln!(
        "{died} of a million pieces died, in {:.2} s",
        began.elapsed().as_secs_f64()
    );
}

/// If every sample looked at every piece, this would take ten thousand million looks and never end.
#[test]
fn two_hundred_thousand_loose_pieces_come_to_an_end() {
    let memory = MemoryHistory::from_trace(&without_looks(200_000));
    let died = memory.pieces.iter().filter(|piece| piece.died.is_some()).count();
    assert!(died > 140_000, "{died}");
}
