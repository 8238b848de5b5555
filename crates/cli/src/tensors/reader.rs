//! Reading a safetensors file: mapped into memory, its header distrusted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use memmap2::Mmap;
use qkv_rope_op::Tensor;
use safetensors::tensor::{Dtype, SafeTensorError, TensorInfo};
use serde::de::{IgnoredAny, MapAccess, Visitor};

use crate::failure::Failure;

/// Bytes of the length that a file starts with.
const LENGTH_BYTES: usize = 8;

/// The longest header that the format allows.
const HEADER_LIMIT_BYTES: u64 = 100_000_000;

/// An open file whose header was found to be consistent with its length.
#[derive(Debug)]
pub(crate) struct TensorFile {
    path: PathBuf,
    map: Mmap,
    data_start: usize,
    tensors: BTreeMap<String, TensorInfo>,
}

/// One tensor of a file.
#[derive(Debug)]
pub(crate) struct Stored<'a> {
    /// Extents, outermost first.
    pub(crate) shape: Vec<usize>,
    /// Row-major elements: the file's own memory where it is aligned to 4 bytes, otherwise a copy.
    pub(crate) data: Cow<'a, [f32]>,
}

impl TensorFile {
    /// Opens a file and checks its header; no tensor is read yet.
    ///
    /// # Errors
    /// Names the file, and the tensor where one is at fault.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("{}: cannot be opened", path.display()))?;
        if !file.metadata().with_context(|| path.display().to_string())?.is_file() {
            return Err(Failure::input(format!("{}: is not a regular file", path.display())).into());
        }
        // SAFETY: the map is private and read-only. Who shortens the file meanwhile ends this process with a bus
        // error, as with every program that maps files; the documentation of `run` says so.
        let map = unsafe { Mmap::map(&file) }.with_context(|| format!("{}: cannot be mapped", path.display()))?;
        let parsed = parse_header(&map);
        let (data_start, tensors) = parsed.map_err(|why| Failure::input(format!("{}: {why}", path.display())))?;
        Ok(Self { path: path.to_owned(), map, data_start, tensors })
    }

    /// Names of all tensors, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The file, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The shape of `tensor`, `None` when the file has no such tensor.
    pub(crate) fn shape(&self, tensor: Tensor) -> Option<&[usize]> {
        self.tensors.get(tensor.name()).map(|info| info.shape.as_slice())
    }

    /// The tensor, `None` when the file has none of this name.
    ///
    /// # Errors
    /// When its elements are not f32.
    pub(crate) fn tensor(&self, tensor: Tensor) -> anyhow::Result<Option<Stored<'_>>> {
        let Some(info) = self.tensors.get(tensor.name()) else { return Ok(None) };
        if info.dtype != Dtype::F32 {
            let message = format!("{tensor}: found dtype {:?}, expected F32", info.dtype);
            return Err(Failure::input(message).help("convert the tensors to float32 before saving them").into());
        }
        let (start, end) = info.data_offsets;
        // In range: the header was validated against the file's length when it was opened.
        let bytes = &self.map[self.data_start + start..self.data_start + end];
        Ok(Some(Stored { shape: info.shape.clone(), data: floats(bytes) }))
    }
}

/// Little-endian bytes as floats, copied only where alignment or byte order ask for it.
fn floats(bytes: &[u8]) -> Cow<'_, [f32]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(floats) if cfg!(target_endian = "little") => Cow::Borrowed(floats),
        _ => {
            let (chunks, _) = bytes.as_chunks::<4>();
            Cow::Owned(chunks.iter().map(|&chunk| f32::from_le_bytes(chunk)).collect())
        }
    }
}

/// Where the data starts, and the tensors by name.
fn parse_header(file: &[u8]) -> Result<(usize, BTreeMap<String, TensorInfo>), String> {
    let header = header_text(file)?;
    if let Some(name) = first_duplicate(header) {
        return Err(format!("header: the name \"{name}\" appears more than once"));
    }
    let tensors = tensor_infos(header)?;
    let data_bytes = file.len() - LENGTH_BYTES - header.len();
    if let Some(fault) = tensors.iter().find_map(|(name, info)| fault(name, info)) {
        return Err(fault);
    }
    if let Some(misplaced) = misplaced(&tensors) {
        return Err(misplaced);
    }
    // The reference implementation has the last word, and the total length is left to it.
    match safetensors::SafeTensors::read_metadata(file) {
        Ok(_) => Ok((LENGTH_BYTES + header.len(), tensors)),
        Err(error) => Err(explain(&error, &tensors, data_bytes)),
    }
}

/// The JSON text after the length, once the length is known to be possible.
fn header_text(file: &[u8]) -> Result<&str, String> {
    let found = file.len();
    let Some((length, rest)) = file.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(format!("found {found} bytes, expected a safetensors file, which is at least {LENGTH_BYTES} long"));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_LIMIT_BYTES {
        return Err(format!(
            "header: found a length of {length} bytes, expected at most {HEADER_LIMIT_BYTES}: this is no safetensors file"
        ));
    }
    let header = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    let Some(header) = header else {
        return Err(format!(
            "header: found {} bytes, expected {length}: the file is truncated or no safetensors file",
            rest.len()
        ));
    };
    std::str::from_utf8(header).map_err(|error| format!("header: is not UTF-8: {error}"))
}

/// The first name that a JSON object uses twice. `None` too when the text is no object: the real parser says so better.
fn first_duplicate(json: &str) -> Option<String> {
    struct Names;

    impl<'de> Visitor<'de> for Names {
        type Value = Option<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut seen = std::collections::HashSet::new();
            let mut duplicate = None;
            while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
                if seen.contains(&name) && duplicate.is_none() {
                    duplicate = Some(name.clone());
                }
                seen.insert(name);
            }
            Ok(duplicate)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(json);
    serde::Deserializer::deserialize_map(&mut deserializer, Names).ok().flatten()
}

/// The entries of the header but `__metadata__`, which is for people.
fn tensor_infos(header: &str) -> Result<BTreeMap<String, TensorInfo>, String> {
    let entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(header).map_err(|error| format!("header: is not a JSON object: {error}"))?;
    let tensors = entries.into_iter().filter(|(name, _)| name != "__metadata__");
    let info = |(name, entry)| match serde_json::from_value::<TensorInfo>(entry) {
        Ok(info) => Ok((name, info)),
        Err(error) => Err(format!("{name}: its entry in the header is not valid: {error}")),
    };
    tensors.map(info).collect()
}

/// What is wrong with a tensor by itself.
fn fault(name: &str, info: &TensorInfo) -> Option<String> {
    let (start, end) = info.data_offsets;
    let elems = info.shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
    let bits = elems.and_then(|elems| elems.checked_mul(info.dtype.bitsize()));
    let Some(bits) = bits else {
        return Some(format!("{name}: shape {:?} has more elements than can be addressed", info.shape));
    };
    let Some(found) = end.checked_sub(start) else {
        return Some(format!("{name}: its data ends at byte {end}, before it starts at byte {start}"));
    };
    (found.checked_mul(8) != Some(bits)).then(|| {
        let expected = bits.div_ceil(8);
        format!("{name}: found {found} bytes, expected {expected} for shape {:?} of {:?}", info.shape, info.dtype)
    })
}

/// The first tensor whose data does not start where that of the tensor before it ends.
fn misplaced(tensors: &BTreeMap<String, TensorInfo>) -> Option<String> {
    let mut by_place: Vec<_> = tensors.iter().map(|(name, info)| (info.data_offsets, name)).collect();
    by_place.sort();
    let mut before: (usize, &str) = (0, "the start of the data");
    for ((start, end), name) in by_place {
        let (expected, what) = before;
        if start < expected {
            return Some(format!(
                "{name}: its data starts at byte {start} and overlaps {what}, which ends at {expected}"
            ));
        }
        if start > expected {
            return Some(format!(
                "{name}: its data starts at byte {start}, a gap after {what}, which ends at {expected}"
            ));
        }
        before = (end, name);
    }
    None
}

/// What the reference implementation found.
fn explain(error: &SafeTensorError, tensors: &BTreeMap<String, TensorInfo>, data_bytes: usize) -> String {
    if !matches!(error, SafeTensorError::MetadataIncompleteBuffer) {
        return format!("header: {error}");
    }
    let expected = tensors.values().map(|info| info.data_offsets.1).max().unwrap_or(0);
    let what = if data_bytes < expected { "is truncated" } else { "goes on after its tensors" };
    format!("found {data_bytes} bytes of tensor data, expected {expected}: the file {what}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A correct file of two tensors.
    fn small_file() -> Vec<u8> {
        let header = r#"{"__metadata__":{"made":"here"},"cos":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"sin":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend([1.0_f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()));
        file
    }

    #[test]
    fn metadata_is_no_tensor() {
        let (_, tensors) = parse_header(&small_file()).expect("it is correct");
        assert_eq!(tensors.keys().collect::<Vec<_>>(), ["cos", "sin"]);
    }

    #[test]
    fn every_cut_of_a_file_is_refused() {
        let file = small_file();
        for cut in 0..file.len() {
            assert!(parse_header(&file[..cut]).is_err(), "cut after {cut} of {} bytes", file.len());
        }
    }

    #[test]
    fn floats_are_read_at_any_alignment() {
        let values: Vec<u8> = [1.5_f32, -2.0, 0.25].iter().flat_map(|value| value.to_le_bytes()).collect();
        for offset in 0..4 {
            let shifted = [vec![0; offset], values.clone()].concat();
            assert_eq!(*floats(&shifted[offset..]), [1.5, -2.0, 0.25]);
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_lies_inside_the_file(
            changes in prop::collection::vec((0_usize..400, any::<u8>()), 0..4),
            cut in 0_usize..400,
        ) {
            let mut file = small_file();
            let len = file.len();
            for (place, byte) in changes {
                file[place % len] = byte;
            }
            file.truncate(cut.max(len / 2));
            if let Ok((data_start, tensors)) = parse_header(&file) {
                for info in tensors.values() {
                    let (start, end) = info.data_offsets;
                    prop_assert!(start <= end && data_start + end <= file.len());
                }
            }
        }
    }
}
