//! What a backend is: something that can say what it would do, and do it.

use serde::Serialize;

use crate::cost::Cost;
use crate::error::Error;
use crate::problem::{Inputs, Outputs, Problem};

/// One implementation on one device, in one configuration.
pub trait Backend: Send + Sync {
    /// The name under which results are listed: `cpu-avx512`.
    fn name(&self) -> String;

    /// What would run, without running it or allocating anything.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason when this backend cannot run the problem.
    fn plan(&self, problem: &Problem) -> Result<Plan, Error>;

    /// Prepares to run the problem many times: workspace, pool, compiled code.
    ///
    /// # Errors
    /// As [`Backend::plan`], and [`Error::Failed`] when the device gives out.
    fn session(&self, problem: &Problem) -> Result<Box<dyn Session + '_>, Error>;
}

/// A prepared problem. Sessions are independent of each other; one session runs one call at a time.
pub trait Session: Send {
    /// Computes the requested outputs; returns when they are written.
    ///
    /// # Errors
    /// Whatever [`Problem::validate`] finds, before anything is written.
    fn backward(&mut self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> Result<(), Error>;
}

/// What a backend would do for a problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The backend's name.
    pub backend: String,
    /// The problem.
    pub problem: Problem,
    /// Least arithmetic and least bytes.
    pub cost: Cost,
    /// Memory beyond inputs and outputs, in bytes.
    pub workspace_bytes: u64,
    /// What runs, in order.
    pub steps: Vec<Step>,
    /// Slower paths taken and why, one sentence each.
    pub notes: Vec<String>,
}

/// One stage of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The kernel or stage: `pack U`.
    pub kernel: String,
    /// Tile sizes, in words: `8x48 tiles, k blocks of 512`.
    pub tiles: String,
    /// How often it runs in one call.
    pub launches: u64,
    /// Floating-point operations of all launches.
    pub flops: u128,
    /// Bytes read and written to memory by all launches, as modelled.
    pub bytes: u128,
}
