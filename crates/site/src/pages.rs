//! The pages, one module each. A page is a value that a template formats and serde writes.

pub(crate) mod api;
pub(crate) mod badges;
pub(crate) mod cohort;
pub(crate) mod compare;
pub(crate) mod device;
pub(crate) mod feed;
pub(crate) mod files;
pub(crate) mod home;
pub(crate) mod implementation;
pub(crate) mod lists;
pub(crate) mod methodology;
pub(crate) mod operation;
pub(crate) mod protocol;
pub(crate) mod reported;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod submit;
