//! Tokens of submitters: 256 random bits each, of which the store keeps only the SHA-256.
//!
//! A slow hash (argon2) protects what people choose, because few passwords are likely. All 2^256 tokens are equally likely, so
//! nobody finds one from its hash at any speed, and a fast hash gives no attacker a way to keep the server busy.

use rusqlite::OptionalExtension as _;

use crate::identity::Digest;
use crate::store::{Store, StoreError};

/// What every token begins with, so that a leaked one is recognised.
const PREFIX: &str = "kernelproof_";

/// A token as its submitter holds it. It is shown once and never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {PREFIX} and 64 lower-case hex digits")]
pub struct NotAToken;

impl Token {
    /// The token of 32 bytes from the operating system's source of randomness.
    pub fn of(random: [u8; 32]) -> Self {
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{PREFIX}{digits}"))
    }

    /// The token that somebody presents.
    ///
    /// # Errors
    /// When it does not look like one; the message does not repeat it.
    pub fn parse(text: &str) -> Result<Self, NotAToken> {
        let digits = text.strip_prefix(PREFIX).ok_or(NotAToken)?;
        Digest::from_hex(digits).map_err(|_| NotAToken)?;
        Ok(Self(text.to_owned()))
    }

    /// The text to be handed to the submitter.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Somebody whose token is stored and was not taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitter {
    name: String,
}

impl Submitter {
    /// Somebody whom the caller knows by other means than a token.
    pub fn known_as(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Who it is.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Store {
    /// Stores the hash of a new token.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn add_token(&self, token: &Token, submitter: &str, created: &str) -> Result<(), StoreError> {
        self.write("token", |writer| writer.token(&token.hash(), submitter, created))
    }

    /// Takes back all tokens of a submitter; returns how many.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn revoke_tokens(&self, submitter: &str, decided: &str, reason: &str) -> Result<usize, StoreError> {
        self.write("token", |writer| writer.revoke(submitter, decided, reason))
    }

    /// Who holds this token; `None` when nobody does, or it was taken back.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn submitter(&self, token: &Token) -> Result<Option<Submitter>, StoreError> {
        let sql = "SELECT submitter FROM token WHERE hash = ?1 AND hash NOT IN (SELECT hash FROM revoked)";
        self.read(|connection, path| {
            let found = connection.query_row(sql, [token.hash().to_string()], |row| row.get(0)).optional();
            Ok(found.map_err(StoreError::of(path))?.map(|name| Submitter { name }))
        })
    }
}
