use super::*;
use crate::bytes::Bytes;
use crate::explain::sample;

fn grown(before: &Explanation, after: &Explanation, value: (Pass, Metric)) -> GrowthExplanation {
    let peak = |of: &Explanation| crate::report::change::figure(&of.run.peaks, value.0, value.1).unwrap_or_default();
    growth(&GrowthInput {
        run: &after.run,
        value,
        grown: (peak(before), peak(after)),
        before,
        after,
        changes: &SourceChanges::default(),
        read: None,
    })
}

/// Checks that all four views of a growth have the same sum.
fn assert_sums(of: &GrowthExplanation) {
    let outside = of.allocator.iter().map(|part| part.change).sum::<i64>() + of.unexplained;
    let sums = [
        of.causes.iter().map(|cause| cause.change).sum::<i64>(),
        of.categories.iter().map(|part| part.change).sum(),
        of.layers.iter().map(|part| part.change).sum(),
        of.lines.iter().map(|line| line.change).sum(),
    ];
    for sum in sums {
        assert_eq!(sum + outside, of.growth(), "{of:#?}");
    }
}

#[test]
fn every_view_of_the_growth_adds_up_to_it() {
    let (small, large) = (sample::resnet_of(2, 2), sample::resnet_of(4, 2));
    for (before, after) in [(&small, &large), (&large, &small)] {
        for metric in Metric::ALL {
            for pass in [Pass::Warm, Pass::Cold] {
                assert_sums(&grown(before, after, (pass, metric)));
            }
        }
    }
}

#[test]
fn without_a_difference_nothing_is_named() {
    let same = sample::resnet_of(2, 2);
    let explained = grown(&same, &same, (Pass::Warm, Metric::Live));
    assert_eq!(explained.causes, []);
    assert_eq!(
        (explained.layers, explained.lines, explained.unexplained),
        (Vec::new(), Vec::new(), 0)
    );
}

#[test]
fn growth_that_the_explanations_do_not_show_has_its_own_part() {
    let same = sample::resnet_of(2, 2);
    let explained = growth(&GrowthInput {
        run: &same.run,
        value: (Pass::Warm, Metric::Live),
        grown: (Bytes(1000), Bytes(1500)),
        before: &same,
        after: &same,
        changes: &SourceChanges::default(),
        read: None,
    });
    assert_eq!(explained.unexplained, 500);
    assert_sums(&explained);
}

/// Explains a parameter and an activation that are three times as large as before. `size` is the activation's first
/// dimension before, in multiples of the parameter's; with `None`, it is that of the batch.
fn three_times_as_large(size: Option<u64>) -> (GrowthExplanation, String, i64) {
    let mut before = sample::resnet_of(2, 2);
    let held: Vec<usize> = before.peak.tensors.iter().map(|index| *index as usize).collect();
    let of = |before: &Explanation, category: Category| {
        let found = held.iter().copied().find(|index| {
            let tensor = &before.tensors[*index];
            tensor.category == category && tensor.bytes.0 > 0 && !tensor.shape.is_empty()
        });
        found.unwrap_or_else(|| panic!("no {category:?}"))
    };
    let (parameter, activation) = (of(&before, Category::Parameter), of(&before, Category::Activation));
    if let Some(size) = size {
        before.tensors[activation].shape[0] = before.tensors[parameter].shape[0] * size;
    }
    let mut after = before.clone();
    let mut more = 0;
    for index in [parameter, activation] {
        let tensor = &mut after.tensors[index];
        tensor.shape[0] *= 3;
        let bytes = tensor.bytes.0;
        tensor.bytes = Bytes(bytes * 3);
        tensor.logical = Bytes(tensor.logical.0 * 3);
        more += bytes * 2;
        let category = tensor.category;
        let held = after.peak.categories.iter_mut().find(|held| held.category == category);
        held.unwrap().bytes.0 += bytes * 2;
    }
    after.peak.live.0 += more;
    let explained = growth(&GrowthInput {
        run: &after.run,
        value: (Pass::Warm, Metric::Live),
        grown: (before.peak.live, after.peak.live),
        before: &before,
        after: &after,
        changes: &SourceChanges::default(),
        read: None,
    });
    assert_sums(&explained);
    let module = before.tensors[parameter].module.clone().unwrap();
    (explained, module.into_raw(), i64::try_from(more).unwrap())
}

#[test]
fn a_wider_layer_is_the_cause_of_what_follows_from_it_and_of_nothing_else() {
    for size in [1, 4] {
        let (explained, module, more) = three_times_as_large(Some(size));
        let [cause] = explained.causes.as_slice() else {
            panic!("{:#?}", explained.causes)
        };
        assert_eq!(
            (cause.change, &cause.what),
            (more, &format!("{module} is larger").into())
        );
    }
    // A batch that is three times as large is another edit: its size is not a multiple of the layer's.
    let (explained, module, _) = three_times_as_large(None);
    let causes: Vec<_> = explained.causes.iter().map(|cause| cause.what.raw()).collect();
    assert!(causes.contains(&format!("{module} is larger").as_str()), "{causes:?}");
    assert_eq!(causes.len(), 2, "{causes:?}");
}

#[test]
fn an_explanation_whose_sums_would_overflow_is_refused() {
    let mut twice = sample::resnet_of(2, 2);
    assert_eq!(twice.check(), Ok(()));
    let first = twice.peak.tensors[0];
    twice.peak.tensors.push(first);
    assert!(twice.check().is_err());
    let mut large = sample::resnet_of(2, 2);
    for tensor in &mut large.tensors {
        tensor.bytes = crate::explain::MOST_BYTES;
    }
    assert!(large.check().is_err());
}
