//! The 29 figures of the seed page: all reachable, all reported, each source table in its own protocol.

use kernelproof_index::catalog::{Catalog, Question};
use kernelproof_index::import::{Mode, Records, import};
use kernelproof_index::trust::Trust;

use crate::support::{Place, committed};

fn catalog() -> Catalog {
    let place = Place::new();
    let store = place.store();
    let records = Records::at(&committed()).expect("they are records");
    import(&store, &records, Mode::Add, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
    store.catalog().expect("it is readable")
}

#[test]
fn both_tables_are_whole_and_in_the_order_of_the_page() {
    let catalog = catalog();
    let operation = catalog.operations()[0].id;
    let table = |env: &str| {
        let table = catalog.sources_of(operation).find(|table| table.hardware == format!("NVIDIA B200 · {env}"));
        let table = table.expect("the page has it");
        let entries = table.rows.iter().map(|row| catalog.external(&row.external).expect("it is listed"));
        let rows: Vec<(String, String)> =
            entries.map(|entry| (entry.spec.implementation.clone(), entry.spec.figures[0].text.clone())).collect();
        (table, rows)
    };
    let (one, rows) = table("env 1");
    assert_eq!((rows.len(), one.history.len()), (20, 1));
    assert_eq!(rows[0], ("Recursive".to_owned(), "81.9µs".to_owned()));
    assert_eq!(rows[19], ("Geometric".to_owned(), "483.8µs".to_owned()));
    let places: Vec<Option<usize>> = one.rows.iter().map(|row| row.rank).collect();
    assert_eq!(places, (1..=20).map(Some).collect::<Vec<_>>());
    let last = one.rows[19].ratio_to_first.expect("it has a time");
    assert_eq!(format!("{last:.2}"), "5.91", "as on the page");
    let (two, rows) = table("env 2");
    assert_eq!(rows.len(), 9);
    assert_eq!(rows[0], ("Recursive".to_owned(), "77.2µs".to_owned()));
    assert_eq!(rows[8].1, "1.18ms");
    assert!(two.history.is_empty(), "the page gives no dates");
    for table in [one, two] {
        assert!(table.caveats.iter().any(|caveat| caveat.contains("geometric mean")));
        assert!(table.caveats.iter().any(|caveat| caveat.contains("v1.1") && caveat.contains("v1.0")));
    }
}

#[test]
fn all_are_reported_and_none_ranks_among_ours() {
    let catalog = catalog();
    assert_eq!(catalog.externals().len(), 29);
    assert!(catalog.externals().iter().all(|entry| entry.trust == Trust::Reported));
    let question =
        Question { operation: "qkv-rope-backward".to_owned(), device: "NVIDIA B200".to_owned(), ..Question::default() };
    let resolution = catalog.resolve(&question).expect("the operation is known");
    assert_eq!(resolution.cohorts, []);
    let reported = resolution.excluded.iter().filter(|excluded| excluded.name.contains("NVIDIA B200"));
    assert_eq!(reported.count(), 2);
    let hits = catalog.search("doubleai", 20);
    assert_eq!(hits.len(), 4);
    let coverage = catalog.coverage(catalog.operations()[0].id).expect("it is known");
    let challenge = coverage.challenges.iter().find(|challenge| challenge.title == "No run on NVIDIA B200");
    assert!(challenge.expect("nobody ran on it").why.contains("29 figures"), "{coverage:?}");
}
