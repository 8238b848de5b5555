//! Plans are pure: everything here runs on a machine without a GPU.

use std::collections::HashMap;

use proptest::prelude::*;
use qkv_rope_cuda::facts::Facts;
use qkv_rope_cuda::kernel::{Access, Arch, HOPPER_TILE, KERNELS, Kernel, Terms};
use qkv_rope_cuda::plan::{Arg, GpuPlan, Layout, plan};
use qkv_rope_cuda::schedule::{FINISH_WORDS, HEADER_WORDS, PRODUCT_WORDS};
use qkv_rope_cuda::{CudaBackend, Error};
use qkv_rope_op::{Backend as _, Dims, Pairing, Precision, Problem, Requested, SUITE, Tensor, Write};

fn h200() -> Facts {
    Facts::named("h200").unwrap()
}

fn with(dims: Dims, precision: Precision) -> Problem {
    Problem { precision, ..Problem::new(dims) }
}

/// The tasks of a plan's product kernel, program by program.
fn tasks(plan: &GpuPlan) -> Vec<Vec<i32>> {
    let schedule = &plan.schedule;
    let mut tasks = Vec::new();
    let tile = plan.choice.cut.tile;
    let blocks = if tile == HOPPER_TILE { tile.cluster } else { 1 };
    for program in 0..(schedule.programs * blocks) as usize {
        for place in 0..schedule.product[program] as usize {
            let at = (schedule.first_task + program * schedule.tasks_each + place) * PRODUCT_WORDS;
            let is_last = place + 1 == schedule.product[program] as usize;
            assert!(is_last || schedule.product[at + 6] < 8, "only the last task of a block may add");
            tasks.push(schedule.product[at..at + PRODUCT_WORDS].to_vec());
        }
    }
    tasks
}

/// How often each element of each output is stored, by 0 grad_hidden, 1..=3 the weight gradients; and how many elements
/// of the contraction went into it.
type Coverage = HashMap<(i32, usize, usize), (u32, usize)>;

fn coverage(plan: &GpuPlan) -> Coverage {
    let tile = plan.choice.cut.tile;
    let (rows, cols, depth) = (tile.rows as usize, tile.cols as usize, tile.depth as usize);
    let dims = plan.problem.dims;
    let mut slots: HashMap<i32, usize> = HashMap::new();
    let mut stored = Coverage::new();
    let mut halves: HashMap<(i32, i32, i32), Vec<(usize, i32)>> = HashMap::new();
    for task in tasks(plan) {
        let [_, n, x0, x1, w0, w1, dest, row, left, col_tile, ..] = task[..] else { unreachable!() };
        assert!((x0..x1).is_empty() || (w0..w1).is_empty(), "a task sums over tokens or over rows, not both");
        let summed = (x1 - x0 + w1 - w0) as usize * depth;
        if left == 0 {
            // The second block of a cluster where tiles are odd in number.
            assert_eq!(plan.choice.cut.tile, HOPPER_TILE);
            continue;
        }
        if dest == 4 {
            let slot = row / rows as i32;
            assert!((slot as u32) < plan.schedule.slots, "slot {slot} of {}", plan.schedule.slots);
            assert!(slots.insert(slot, summed).is_none(), "slot {slot} is written twice");
            continue;
        }
        assert_eq!(n, col_tile);
        if dest >= 8 {
            // Half of a sum, added to zeros: the other half is another task.
            assert!(plan.schedule.zero_from <= row as usize, "row {row} is added to without being zeroed");
            halves.entry((dest - 8, row, n)).or_default().push((summed, left));
            continue;
        }
        for r in 0..rows.min(left as usize) {
            for c in n as usize * cols..dims.hidden().min((n as usize + 1) * cols) {
                let cell = stored.entry((dest, row as usize + r, c)).or_default();
                *cell = (cell.0 + 1, cell.1 + summed);
            }
        }
    }
    for ((dest, row, n), parts) in halves {
        assert_eq!(parts.len(), 2, "a sum of {} parts is added up", parts.len());
        let summed = parts[0].0 + parts[1].0;
        for r in 0..rows.min(parts[0].1 as usize) {
            for c in n as usize * cols..dims.hidden().min((n as usize + 1) * cols) {
                let cell = stored.entry((dest, row as usize + r, c)).or_default();
                *cell = (cell.0 + 1, cell.1 + summed);
            }
        }
    }
    for task in plan.schedule.finish.chunks_exact(FINISH_WORDS) {
        let [slot, parts, dest, batch, row, count, slot_row, col, width, _] = task[..] else { unreachable!() };
        assert!((slot_row + count) as usize <= rows && width as usize <= cols);
        let summed: usize = (slot..slot + parts).map(|slot| slots[&slot]).sum();
        let first = if dest == 0 && !plan.layout.flat_hidden { batch as usize * dims.seq() } else { 0 };
        for r in 0..count as usize {
            for c in col as usize..(col + width) as usize {
                let cell = stored.entry((dest, first + row as usize + r, c)).or_default();
                *cell = (cell.0 + 1, cell.1 + summed);
            }
        }
    }
    stored
}

fn assert_covered(plan: &GpuPlan) {
    let stored = coverage(plan);
    let dims = plan.problem.dims;
    let outputs = [
        (0, Tensor::GradHiddenStates, dims.tokens(), dims.rows()),
        (1, Tensor::GradQWeight, dims.query_rows(), dims.tokens()),
        (2, Tensor::GradKWeight, dims.kv_rows(), dims.tokens()),
        (3, Tensor::GradVWeight, dims.kv_rows(), dims.tokens()),
    ];
    let mut expected = 0;
    for (dest, tensor, rows, contraction) in outputs {
        if plan.problem.outputs.get(tensor).is_none() {
            continue;
        }
        expected += rows * dims.hidden();
        for row in 0..rows {
            for col in 0..dims.hidden() {
                let cell = stored.get(&(dest, row, col)).copied();
                let (times, summed) = cell.unwrap_or_else(|| panic!("{tensor} row {row} column {col} is not stored"));
                assert_eq!(times, 1, "{tensor} row {row} column {col} is stored {times} times");
                let tiles = contraction.div_ceil(plan.choice.cut.tile.depth as usize);
                assert_eq!(summed, tiles * plan.choice.cut.tile.depth as usize, "{tensor} row {row} column {col}");
            }
        }
    }
    assert_eq!(stored.len(), expected, "elements outside the requested outputs are stored");
}

prop_compose! {
    fn problems()(
        batch in 0_usize..4, seq in 0_usize..200, hidden in 1_usize..300, heads in 0_usize..5, kv in 0_usize..3,
        half in 1_usize..50, rotary in 0_usize..50, interleaved: bool, split: bool, request in 0_u32..81,
    ) -> Problem {
        let dims = Dims::new(batch, seq, hidden, heads, kv, 2 * half).unwrap().with_rotary_dim(2 * rotary.min(half)).unwrap();
        let pick = |digit: u32| match request / 3_u32.pow(digit) % 3 {
            0 => None,
            1 => Some(Write::Overwrite),
            _ => Some(Write::Accumulate),
        };
        Problem {
            dims,
            pairing: if interleaved { Pairing::Interleaved } else { Pairing::HalfSplit },
            precision: if split { Precision::Split } else { Precision::Fast },
            outputs: Requested {
                grad_hidden: pick(0), grad_q_weight: pick(1), grad_k_weight: pick(2), grad_v_weight: pick(3),
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_requested_element_is_stored_once(problem in problems(), flat: bool, wide: bool) {
        let outputs = if wide { Access::Wide } else { Access::Narrow };
        let layout = Layout { outputs, flat_hidden: flat, ..Layout::dense(problem.dims) };
        assert_covered(&plan(&problem, &h200(), layout).unwrap());
    }
}

#[test]
fn the_suite_s_heads_are_covered_in_both_modes() {
    // Narrower than the suite, which has the same row tiles eight times over.
    for (batch, seq) in [(2, 128), (2, 293)] {
        let dims = Dims::new(batch, seq, 192, 24, 4, 96).unwrap();
        for precision in [Precision::Fast, Precision::Split] {
            assert_covered(&plan(&with(dims, precision), &h200(), Layout::DENSE).unwrap());
        }
    }
}

#[test]
fn one_call_is_at_most_four_launches_in_a_bounded_workspace() {
    for case in SUITE {
        let dims = case.dims();
        let plan = plan(&with(dims, Precision::Fast), &h200(), Layout::DENSE).unwrap();
        assert!(plan.launches.len() <= 4, "{}: {} launches", case.name(), plan.launches.len());
        let allowed = 10_000 * dims.tokens() as u64 + 24_000_000;
        assert!(plan.workspace.bytes <= allowed, "{}: {} of {allowed} bytes", case.name(), plan.workspace.bytes);
    }
}

#[test]
fn long_sums_of_fast_are_split() {
    let dims = Dims::new(8, 8192, 64, 1, 1, 64).unwrap();
    let b200 = Facts::named("b200").unwrap();
    let plan = plan(&with(dims, Precision::Fast), &b200, Layout::DENSE).unwrap();
    for task in tasks(&plan) {
        let summed = (task[5] - task[4]) as u32 * plan.choice.cut.tile.depth;
        assert!(summed <= 8192, "a sum of {summed} terms");
    }
}

#[test]
fn memory_layout_does_not_change_who_sums_what() {
    let problem = with(SUITE[11].dims(), Precision::Fast);
    let dense = plan(&problem, &h200(), Layout::DENSE).unwrap();
    let narrow = Layout { inputs: Access::Narrow, outputs: Access::Narrow, flat_hidden: false };
    assert_eq!(dense.choice, plan(&problem, &h200(), narrow).unwrap().choice);
}

#[test]
fn every_named_gpu_plans_with_kernels_it_has() {
    for name in Facts::NAMES {
        let facts = Facts::named(name).unwrap();
        for precision in [Precision::Fast, Precision::Split] {
            let plan = plan(&with(SUITE[4].dims(), precision), &facts, Layout::DENSE).unwrap();
            for launch in &plan.launches {
                assert!(launch.kernel.targets(facts.arch), "{name}: {} is not compiled for it", launch.kernel);
            }
        }
    }
}

#[test]
fn every_architecture_has_a_tile_for_either_number_of_terms() {
    for arch in Arch::ALL {
        for terms in [Terms::One, Terms::Two] {
            let has = |kernel: &&Kernel| match kernel {
                Kernel::Product(tile) => tile.terms == terms,
                Kernel::HopperProduct => terms == Terms::One,
                _ => false,
            };
            assert!(
                KERNELS.iter().filter(|kernel| kernel.targets(arch)).any(|kernel| has(&kernel)),
                "{arch} {terms:?}"
            );
        }
    }
}

#[test]
fn arguments_of_ptx_kernels_are_its_parameters() {
    let narrow = Layout { inputs: Access::Narrow, outputs: Access::Narrow, flat_hidden: false };
    for layout in [Layout::DENSE, narrow] {
        let plan = plan(&with(SUITE[0].dims(), Precision::Fast), &h200(), layout).unwrap();
        for launch in &plan.launches {
            let ptx = launch.kernel.ptx().expect("fast on Hopper is all PTX");
            let declared: Vec<&str> =
                ptx.lines().filter_map(|line| line.trim().strip_prefix(".param ")).map(|line| &line[..4]).collect();
            let passed: Vec<&str> = launch
                .args
                .iter()
                .map(|arg| match arg {
                    Arg::Map(_) => ".ali",
                    Arg::At(_) | Arg::Distance(_) | Arg::WideStride(..) => ".u64",
                    Arg::Stride(..) | Arg::Int(_) => ".u32",
                })
                .collect();
            assert_eq!(passed, declared, "{}", launch.kernel);
        }
    }
}

#[test]
fn row_names_are_unique() {
    let mut names: Vec<String> = KERNELS.iter().map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), KERNELS.len());
}

#[test]
fn powers_of_two_start_after_the_header() {
    let plan = plan(&with(SUITE[0].dims(), Precision::Fast), &h200(), Layout::DENSE).unwrap();
    for task in tasks(&plan) {
        let hidden = task[3] > task[2];
        let expected = if hidden { HEADER_WORDS as i32 + task[0] * plan.choice.cut.tile.rows as i32 } else { 2 };
        assert_eq!(task[10], expected);
    }
}

#[test]
fn nothing_requested_and_nothing_to_write_launch_nothing() {
    let none = Problem { outputs: Requested::none(), ..with(SUITE[0].dims(), Precision::Fast) };
    assert!(plan(&none, &h200(), Layout::DENSE).unwrap().launches.is_empty());
    let empty = with(Dims::new(2, 8, 0, 2, 1, 8).unwrap(), Precision::Fast);
    assert!(plan(&empty, &h200(), Layout::DENSE).unwrap().launches.is_empty());
}

#[test]
fn zero_tokens_still_zero_the_weight_gradients() {
    let plan = plan(&with(Dims::new(0, 8, 16, 2, 1, 8).unwrap(), Precision::Split), &h200(), Layout::DENSE).unwrap();
    assert!(plan.launches.iter().any(|launch| matches!(launch.kernel, Kernel::Product(_))));
    assert_covered(&plan);
}

#[test]
fn a_slower_path_says_why() {
    let problem = Problem { pairing: Pairing::Interleaved, ..with(SUITE[0].dims(), Precision::Fast) };
    let plan = plan(&problem, &h200(), Layout { outputs: Access::Narrow, ..Layout::DENSE }).unwrap();
    assert!(plan.notes.iter().any(|note| note.contains("general kernel")), "{:?}", plan.notes);
    assert!(plan.notes.iter().any(|note| note.contains("scratch")), "{:?}", plan.notes);
}

#[test]
fn extents_beyond_31_bits_are_refused() {
    let dims = Dims::new(1, 1 << 31, 8, 1, 1, 2).unwrap();
    let refused = plan(&with(dims, Precision::Fast), &h200(), Layout::DENSE).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
}

#[test]
fn arguments_of_a_kernel_do_not_depend_on_the_layout() {
    let problem = with(SUITE[0].dims(), Precision::Fast);
    let count = |layout| {
        let plan = plan(&problem, &h200(), layout).unwrap();
        plan.launches.iter().map(|launch| (launch.kernel.function(), launch.args.len())).collect::<Vec<_>>()
    };
    let dense = count(Layout::DENSE);
    let narrow = count(Layout { outputs: Access::Narrow, ..Layout::DENSE });
    assert!(dense.iter().all(|kernel| narrow.contains(kernel)), "{dense:?} {narrow:?}");
}

#[test]
fn addresses_appear_by_name_only() {
    let plan = plan(&with(SUITE[0].dims(), Precision::Split), &h200(), Layout::DENSE).unwrap();
    let text = format!("{:?}", plan.launches.iter().flat_map(|launch| &launch.args).collect::<Vec<&Arg>>());
    assert!(text.contains("GradQuery") && !text.contains("0x"), "{text}");
}

#[test]
fn the_backend_plans_for_a_gpu_that_is_not_there_and_refuses_to_run() {
    let backend = CudaBackend::planning_for(h200());
    let problem = with(SUITE[15].dims(), Precision::Split);
    let plan = backend.plan(&problem).unwrap();
    assert_eq!(plan.backend, "cuda-sm_90");
    assert!(plan.steps.len() >= 3);
    assert!(backend.session(&problem).is_err());
    assert!(backend.plan(&Problem::new(problem.dims)).is_err(), "`ieee` has no GPU kernels");
}
