//! The schema, one step per version. A step that was released is never edited; a change is a further step.

/// `PRAGMA application_id`: "knpf".
pub(super) const APPLICATION: i32 = 0x6b6e_7066;

/// What is done to reach version 1, 2, ...; `PRAGMA user_version` says how many were done.
pub(super) const STEPS: [&str; 1] = [VERSION_1];

/// Tables whose contents come from `records/` and can be made again.
pub(super) const DERIVED: [&str; 6] = ["run_file", "submission", "committed", "run", "manifest", "blob"];

const VERSION_1: &str = concat!(
    // One row per transaction that changed something; the highest number is the catalog's generation.
    "CREATE TABLE generation (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        cause TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER generation_keeps BEFORE UPDATE ON generation BEGIN SELECT RAISE(ABORT, 'append-only: generation'); END;
    CREATE TRIGGER generation_stays BEFORE DELETE ON generation BEGIN SELECT RAISE(ABORT, 'append-only: generation'); END;",
    // A submitter's token: 256 random bits, of which only the hash is here.
    "CREATE TABLE token (
        hash TEXT PRIMARY KEY CHECK (length(hash) = 71),
        submitter TEXT NOT NULL CHECK (submitter <> ''),
        created TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER token_keeps BEFORE UPDATE ON token BEGIN SELECT RAISE(ABORT, 'append-only: token'); END;
    CREATE TRIGGER token_stays BEFORE DELETE ON token BEGIN SELECT RAISE(ABORT, 'append-only: token'); END;
    CREATE TABLE revoked (
        hash TEXT PRIMARY KEY REFERENCES token (hash),
        decided TEXT NOT NULL,
        reason TEXT NOT NULL CHECK (reason <> '')
    ) STRICT;
    CREATE TRIGGER revoked_keeps BEFORE UPDATE ON revoked BEGIN SELECT RAISE(ABORT, 'append-only: revoked'); END;
    CREATE TRIGGER revoked_stays BEFORE DELETE ON revoked BEGIN SELECT RAISE(ABORT, 'append-only: revoked'); END;",
);

/// The tables of [`DERIVED`] with their triggers, in the order in which they refer to each other.
pub(super) const DERIVED_TABLES: &str = "
    CREATE TABLE blob (
        digest TEXT PRIMARY KEY CHECK (length(digest) = 71),
        size_bytes INTEGER NOT NULL,
        deflated BLOB NOT NULL
    ) STRICT;
    CREATE TRIGGER blob_keeps BEFORE UPDATE ON blob BEGIN SELECT RAISE(ABORT, 'append-only: blob'); END;
    CREATE TRIGGER blob_stays BEFORE DELETE ON blob BEGIN SELECT RAISE(ABORT, 'append-only: blob'); END;

    CREATE TABLE manifest (
        sequence INTEGER PRIMARY KEY,
        text_digest TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL CHECK (kind IN ('operation', 'suite', 'external', 'correction')),
        digest TEXT NOT NULL CHECK (length(digest) = 71),
        body TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER manifest_keeps BEFORE UPDATE ON manifest BEGIN SELECT RAISE(ABORT, 'append-only: manifest'); END;
    CREATE TRIGGER manifest_stays BEFORE DELETE ON manifest BEGIN SELECT RAISE(ABORT, 'append-only: manifest'); END;

    CREATE TABLE run (
        digest TEXT PRIMARY KEY CHECK (length(digest) = 71),
        facts_version INTEGER NOT NULL,
        facts TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER run_keeps BEFORE UPDATE ON run BEGIN SELECT RAISE(ABORT, 'append-only: run'); END;
    CREATE TRIGGER run_stays BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'append-only: run'); END;

    CREATE TABLE run_file (
        run TEXT NOT NULL REFERENCES run (digest),
        name TEXT NOT NULL,
        digest TEXT NOT NULL REFERENCES blob (digest),
        PRIMARY KEY (run, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER run_file_keeps BEFORE UPDATE ON run_file BEGIN SELECT RAISE(ABORT, 'append-only: run_file'); END;
    CREATE TRIGGER run_file_stays BEFORE DELETE ON run_file BEGIN SELECT RAISE(ABORT, 'append-only: run_file'); END;

    CREATE TABLE committed (
        run TEXT PRIMARY KEY REFERENCES run (digest)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER committed_keeps BEFORE UPDATE ON committed BEGIN SELECT RAISE(ABORT, 'append-only: committed'); END;
    CREATE TRIGGER committed_stays BEFORE DELETE ON committed BEGIN SELECT RAISE(ABORT, 'append-only: committed'); END;

    CREATE TABLE submission (
        run TEXT PRIMARY KEY REFERENCES run (digest),
        submitter TEXT NOT NULL,
        received TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER submission_keeps BEFORE UPDATE ON submission BEGIN SELECT RAISE(ABORT, 'append-only: submission'); END;
    CREATE TRIGGER submission_stays BEFORE DELETE ON submission BEGIN SELECT RAISE(ABORT, 'append-only: submission'); END;
";
