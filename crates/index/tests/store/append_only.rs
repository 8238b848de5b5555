//! Nothing that is stored can be changed or removed through SQL.

use kernelproof_index::correction::Action;
use kernelproof_index::token::Token;

use crate::support::{Place, recipe};

#[test]
fn every_table_refuses_updates_and_deletions() {
    let place = Place::new();
    let run = place.add(&recipe("one", 1, 30_000.0));
    place.correct(run, Action::Retract, "wrong");
    place.import();
    let store = place.store();
    store.add_token(&Token::of([1; 32]), "someone", "2026-01-01T00:00:00Z").expect("it is writable");
    store.revoke_tokens("someone", "2026-01-02T00:00:00Z", "lost").expect("it is writable");
    drop(store);
    let connection = rusqlite::Connection::open(place.path().join("index.sqlite")).expect("it opens");
    connection.pragma_update(None, "recursive_triggers", true).expect("it is writable");
    let columns = "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c
                   WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'";
    let mut statement = connection.prepare(columns).expect("it is readable");
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let mut tables = std::collections::BTreeMap::new();
    for row in rows.expect("it is readable") {
        let (table, column) = row.expect("it is readable");
        tables.entry(table).or_insert(column);
    }
    assert_eq!(tables.len(), 9, "{tables:?}");
    // A table without rows asks no trigger.
    connection
        .execute("INSERT INTO submission (run, submitter, received) VALUES (?1, 'x', 'x')", [run.to_string()])
        .expect("it may be added");
    for (table, column) in tables {
        for sql in [format!("UPDATE {table} SET {column} = {column}"), format!("DELETE FROM {table}")] {
            let error = connection.execute(&sql, []).expect_err(&sql).to_string();
            assert!(error.contains(&format!("append-only: {table}")), "{sql}: {error}");
        }
        let replace = format!("INSERT OR REPLACE INTO {table} SELECT * FROM {table}");
        connection.execute(&replace, []).expect_err(&replace);
    }
}
