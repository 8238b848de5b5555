//! Files that lie: each is refused with exit code 2, in words, and leaves no output behind.

use proptest::prelude::*;

use crate::files::{Draft, Folder, report};

/// Runs a file and returns the exit code; a file that is refused must leave nothing behind, and no run may be killed.
fn code_of(bytes: &[u8]) -> i32 {
    let folder = Folder::new();
    folder.write("in.safetensors", bytes);
    let output = folder.run(&["run", "in.safetensors", "-o", "out.safetensors", "--threads", "1"]);
    let code = output.status.code().unwrap_or_else(|| panic!("killed: {}", report(&output)));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    if code != 0 {
        assert!(stderr.starts_with("error: "), "{stderr}");
        assert_eq!(folder.names(), ["in.safetensors"]);
    }
    code
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = Draft::small().bytes();
    let header_end = whole.len() - Draft::small().data.len();
    let cuts = (0..header_end + 4).step_by(7).chain([1, 7, 8, 9, header_end, whole.len() - 1]);
    for cut in cuts {
        assert_eq!(code_of(&whole[..cut]), 2, "cut after {cut} of {} bytes", whole.len());
    }
}

#[test]
fn a_file_with_bytes_after_its_tensors_is_refused() {
    let mut bytes = Draft::small().bytes();
    bytes.push(0);
    assert_eq!(code_of(&bytes), 2);
}

#[test]
fn numbers_that_are_no_numbers_are_refused() {
    let draft = Draft::small();
    let header = String::from_utf8(draft.bytes()[8..draft.bytes().len() - draft.data.len()].to_vec()).expect("JSON");
    for number in ["NaN", "-1", "1e400", "1.5", "18446744073709551616", "null", "\"4\"", "[]"] {
        let header = header.replacen("\"shape\":[2,", &format!("\"shape\":[{number},"), 1);
        assert_eq!(code_of(&draft.with_header(header.as_bytes())), 2, "{number}");
    }
}

proptest! {
    // Each case starts a process.
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_one_changed_byte_of_its_header_is_read_or_refused(place in 0_usize..700, byte: u8) {
        let mut bytes = Draft::small().bytes();
        let place = place % (bytes.len() - Draft::small().data.len());
        bytes[place] = byte;
        let code = code_of(&bytes);
        prop_assert!(code == 0 || code == 2, "exit code {code}");
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(code_of(&bytes), 2);
    }

    #[test]
    fn any_shapes_and_offsets_are_refused_unless_they_are_right(
        tensor in 0_usize..9,
        shape in prop::collection::vec(prop_oneof![0_u64..10, Just(1 << 40), Just(u64::MAX)], 0..5),
        offsets in (0_u64..3000, 0_u64..3000),
    ) {
        let mut draft = Draft::small();
        let info = &mut draft.entries[tensor].1;
        info["shape"] = serde_json::json!(shape);
        info["data_offsets"] = serde_json::json!([offsets.0, offsets.1]);
        let code = code_of(&draft.bytes());
        prop_assert!(code == 2 || code == 0, "exit code {code}");
    }

    #[test]
    fn any_json_header_is_refused(text in r#"[\[\]{}",:0-9a-z ]{0,60}"#) {
        prop_assert_eq!(code_of(&Draft::small().with_header(text.as_bytes())), 2);
    }
}
