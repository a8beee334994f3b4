//! The format as a page of numbers: golden bytes, `docs/format.md`, and what a header check refuses.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::header::{HEADER_BYTES, Header, MAX_REGIONS, RegionKind};
use super::plan::{Labelled, Origin, Plan, Shape};
use super::*;
use crate::clock::Clock;
use crate::error::{BadOption, Malformed};
use crate::limit::{Algorithm, CallLimit, Definition, RateLimit, ResourceLimit};

fn shape() -> Shape {
    let region = |kind, label: &str, size| Labelled { kind, label: label.to_owned(), size };
    let definition = Definition {
        limits: vec![
            CallLimit::per_minute(500).into(),
            RateLimit::per_second("rows", 7).algorithm(Algorithm::SlidingWindow).resolution(2).into(),
            ResourceLimit::new("connections", 8).into(),
        ],
        config: [("region".to_owned(), "eu".to_owned())].into(),
        ..Definition::default()
    };
    Shape {
        slots: 3,
        limits: 3,
        cells: definition.cells(),
        waiters: 2,
        clock: Clock::Monotonic,
        items: 2,
        payload_bytes: 20,
        result_bytes: 4,
        definition: Some(definition),
        labelled: vec![
            region(RegionKind::Mutex, "jobs", 5),
            region(RegionKind::Semaphore, "db", 8),
            region(RegionKind::Words, "mine", 3),
        ],
    }
}

fn plan(shape: &Shape) -> Plan {
    let origin = Origin {
        instance: *b"0123456789abcdef",
        unix_nanos: 1_700_000_000_000_000_000,
        pid: 4321,
        uid: 1000,
        clock_now: 123_456_789,
        boot_id: [0x1111_2222_3333_4444, 0x5555_6666_7777_8888],
        time_namespace: 4_026_531_834,
    };
    shape.plan(&origin).unwrap()
}

fn image(plan: &Plan) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(plan.total_bytes).unwrap()];
    for (offset, piece) in &plan.pieces {
        let start = usize::try_from(*offset).unwrap();
        bytes[start..start + piece.len()].copy_from_slice(piece);
    }
    bytes
}

/// Every row of 16 bytes that is not all zero.
fn dump(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes\n", bytes.len());
    for (index, row) in bytes.chunks(16).enumerate() {
        if row.iter().any(|byte| *byte != 0) {
            write!(text, "{:06x}", index * 16).unwrap();
            row.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

#[test]
fn a_new_segment_has_exactly_the_golden_bytes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/segment-v5.txt");
    let found = dump(&image(&plan(&shape())));
    if std::env::var_os("LIMITSET_BLESS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(found, golden, "the format changed: raise FORMAT_VERSION, then bless with LIMITSET_BLESS=1");
}

#[test]
fn the_format_document_states_the_numbers_of_the_code() {
    let text = include_str!("../../docs/format.md");
    let mut tables: BTreeMap<String, Vec<(String, String, String)>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if line.starts_with('#') {
            current = line.strip_prefix("### ").map(str::to_owned);
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let (Some(heading), ["", offset, size, name, ..]) = (&current, cells.as_slice())
            && offset.starts_with(|c: char| c.is_ascii_digit())
        {
            let row = (name.trim_matches('`').to_owned(), (*offset).to_owned(), (*size).to_owned());
            tables.entry(heading.clone()).or_default().push(row);
        }
    }
    for (name, size, fields) in STRUCTS {
        let heading = format!("{name}: {size} bytes");
        let expected: Vec<_> = fields
            .iter()
            .map(|(name, at, size)| ((*name).to_owned(), at.to_string(), size.to_string()))
            .collect();
        assert_eq!(tables.remove(&heading), Some(expected), "docs/format.md, table {heading:?}");
    }
    assert!(tables.is_empty(), "docs/format.md describes structs that do not exist: {tables:?}");
    for fact in [
        format!("format version {FORMAT_VERSION}"),
        format!("layout hash `{LAYOUT_HASH:#018x}`"),
        format!("{HEADER_BYTES} bytes of header"),
        format!("{MAX_REGIONS} directory entries"),
        format!("{} entries for 64 limits", state::journal_entries(64)),
    ] {
        assert!(text.contains(&fact), "docs/format.md lacks {fact:?}");
    }
}

#[test]
fn fields_leave_no_gaps_that_are_not_named() {
    for (name, size, fields) in STRUCTS {
        let mut end = 0;
        for (field, offset, bytes) in *fields {
            assert_eq!(*offset, end, "{name}.{field} does not follow its predecessor");
            end = offset + bytes;
        }
        assert_eq!(end, *size, "{name} has padding at its end");
    }
}

#[test]
fn what_one_acquire_of_three_limits_writes_fits_in_eight_lines() {
    let shape = Shape { slots: 256, limits: 3, cells: 0, waiters: 1024, ..Shape::default() };
    let checked = Header::check(&plan(&shape).pieces[0].1, plan(&shape).total_bytes).unwrap();
    let state = checked.state;
    let words = state.offset + block::HEAD_BYTES + u64::from(state.journal_entries) * 16;
    // Two words of state and `consumed` for each limit, and the set's latest instant.
    let limits = checked.header.state_map().limit_words() as u64;
    let written: Vec<u64> =
        (0..3).flat_map(|limit| [0, 1, 3].map(|word| limits + limit * 4 + word)).collect();
    let mut touched: Vec<u64> = [state.offset, words].to_vec();
    touched.extend(written.iter().map(|word| words + word * 8));
    touched
        .extend((0..2 * (written.len() as u64 + 1)).map(|half| state.offset + block::HEAD_BYTES + half * 8));
    let mut lines: Vec<u64> = touched.iter().map(|byte| byte / 64).collect();
    lines.sort_unstable();
    lines.dedup();
    assert!(lines.len() <= 8, "{} lines", lines.len());
    assert!(words.is_multiple_of(64), "the set's hot words start a line");
}

#[test]
fn a_plan_passes_its_own_check_and_finds_its_regions() {
    let plan = plan(&shape());
    let checked = Header::check(&image(&plan), plan.total_bytes).unwrap();
    let labels: Vec<_> = checked.labelled.iter().map(|(kind, entry)| (*kind, entry.label())).collect();
    assert_eq!(
        labels,
        [(RegionKind::Mutex, &b"jobs"[..]), (RegionKind::Semaphore, b"db"), (RegionKind::Words, b"mine")]
    );
}

#[test]
fn every_changed_byte_of_the_header_is_noticed() {
    let plan = plan(&shape());
    let whole = image(&plan);
    for at in 0..size_of::<Header>() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        assert!(Header::check(&bytes, plan.total_bytes).is_err(), "byte {at}");
    }
}

/// Changes a header and makes its checksum right again: damage that only the later checks can find.
fn forged(change: impl FnOnce(&mut Header)) -> Malformed {
    let plan = plan(&shape());
    let mut bytes = image(&plan);
    let mut header: Header = bytemuck::pod_read_unaligned(&bytes[..size_of::<Header>()]);
    change(&mut header);
    header.checksum = header.computed_checksum();
    bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
    Header::check(&bytes, plan.total_bytes).unwrap_err()
}

#[test]
fn lies_with_a_correct_checksum_are_refused_too() {
    use Malformed as M;
    assert!(matches!(forged(|h| h.slots = 0), M::Count { what: "slots", .. }));
    assert!(matches!(forged(|h| h.slots = u32::MAX), M::Count { what: "slots", .. }));
    assert!(matches!(forged(|h| h.limits = 65), M::Count { what: "limits", .. }));
    assert!(matches!(forged(|h| h.clock = 9), M::Clock { found: 9, .. }));
    assert!(matches!(forged(|h| h.regions = 999), M::Count { what: "regions", .. }));
    assert!(matches!(forged(|h| h.regions = 2), M::RegionMissing));
    assert!(matches!(forged(|h| h.total_bytes += 1), M::Size { .. }));
    assert!(matches!(forged(|h| h.directory[1].offset = 0), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[1].offset += 64), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[6].length = u64::MAX), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[1].length = 8), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[0].words += 1), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[0].journal_entries = 1), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[5].words = u32::MAX), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[6].kind = 1), M::Region { .. }));
    assert!(matches!(forged(|h| h.directory[3].version = 77), M::Region { .. }));
    assert!(matches!(forged(|h| h.slots = 4000), M::Region { .. }));
}

#[test]
fn a_region_of_a_kind_from_the_future_is_left_alone() {
    let plan = plan(&shape());
    let mut bytes = image(&plan);
    let mut header: Header = bytemuck::pod_read_unaligned(&bytes[..size_of::<Header>()]);
    header.directory[7].kind = 77;
    header.directory[7].version = 9;
    header.checksum = header.computed_checksum();
    bytes[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
    assert_eq!(Header::check(&bytes, plan.total_bytes).unwrap().labelled.len(), 2);
}

#[test]
fn impossible_wishes_are_refused_before_anything_is_made() {
    type Case = (fn(&mut Shape), fn(&BadOption) -> bool);
    let cases: [Case; 8] = [
        (|s| s.slots = 0, |b| matches!(b, BadOption::Count { what: "slots", .. })),
        (|s| s.slots = 4096, |b| matches!(b, BadOption::Count { what: "slots", .. })),
        (|s| s.limits = 65, |b| matches!(b, BadOption::Count { what: "limits", .. })),
        (|s| s.labelled[0].label = String::new(), |b| matches!(b, BadOption::Label { .. })),
        (|s| s.labelled[0].label = "x".repeat(33), |b| matches!(b, BadOption::Label { .. })),
        (|s| s.labelled[0].label = "db".to_owned(), |b| matches!(b, BadOption::LabelTwice { .. })),
        (|s| s.labelled[1].size = 0, |b| matches!(b, BadOption::RegionSize { .. })),
        (|s| s.labelled = vec![s.labelled[0].clone(); 30], |b| matches!(b, BadOption::TooManyRegions { .. })),
    ];
    for (change, is_right) in cases {
        let mut shape = shape();
        change(&mut shape);
        let refused = shape.check().unwrap_err();
        assert!(is_right(&refused), "{refused}");
    }
}

#[test]
fn the_largest_possible_segment_can_be_planned() {
    let shape = Shape { slots: 4095, limits: 64, cells: 1 << 16, waiters: 1 << 16, ..Shape::default() };
    let plan = plan(&shape);
    assert!(Header::check(&plan.pieces[0].1, plan.total_bytes).is_ok());
}
