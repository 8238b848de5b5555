//! `serve`: the index as a web site.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kernelproof_index::Store;
use kernelproof_site::Site;
use kernelproof_site::intake::{Intake, Limits};

use crate::failure::{Exit, Failure};
use crate::library::LibraryArgs;
use crate::{interrupt, library, output};

const AFTER_HELP: &str = "\
Examples:
  kernelproof serve                              http://127.0.0.1:8317, with the records of this clone
  kernelproof serve --listen 0.0.0.0:80 --submissions

Imports what is new in the folder of records, where there is one, and serves the index until Ctrl-C. With --submissions it takes \
run bundles from those who have a token (`kernelproof index token new NAME`). What another process imports meanwhile is shown \
within seconds.

There is no encryption: put a proxy with TLS in front before tokens cross a network.

Exit codes: 0 stopped by Ctrl-C, 1 the records are not right and nothing of them was imported, 2 the index or the address cannot be used.";

/// Serve the index as a web site with a JSON API
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    library: LibraryArgs,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8317")]
    listen: SocketAddr,
    /// Take submissions
    #[arg(long)]
    submissions: bool,
    /// Serve the index as it is, without importing records
    #[arg(long, conflicts_with = "records")]
    no_import: bool,
}

/// How often the store is asked whether something changed, and the process whether it should stop.
const GLANCE: Duration = Duration::from_millis(200);
const GLANCES_PER_LOOK: u32 = 10;

/// Runs the command.
pub(crate) fn execute(args: &ServeArgs) -> anyhow::Result<Exit> {
    let listener = TcpListener::bind(args.listen).map_err(|error| {
        Failure::input(format!("{}: cannot listen: {error}", args.listen)).help("take another port with --listen")
    })?;
    let store = Arc::new(args.library.store()?);
    if !args.no_import && !library::import_new(&args.library, &store)? {
        return Ok(Exit::CheckFailed);
    }
    interrupt::listen()?;
    let site = Site::new(Arc::new(store.catalog()?), store.clone());
    let site = if args.submissions { site.with_intake(Intake::new(store.clone(), Limits::default())) } else { site };
    let address = listener.local_addr().context("the address cannot be told")?;
    output::print(&format!("http://{address}"))?;
    output::note("press Ctrl-C to stop");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no threads to serve with")?;
    let site = Arc::new(site);
    let served = runtime.block_on(kernelproof_site::serve(site.clone(), listener, until_interrupted(site, store)));
    served.context("serving ended")?;
    Ok(Exit::Success)
}

/// Waits for Ctrl-C, and shows meanwhile what other processes store.
async fn until_interrupted(site: Arc<Site>, store: Arc<Store>) {
    while !interrupt::requested() {
        for _ in 0..GLANCES_PER_LOOK {
            tokio::time::sleep(GLANCE).await;
            if interrupt::requested() {
                return;
            }
        }
        let (shown, store) = (site.catalog().generation(), store.clone());
        let newer = tokio::task::spawn_blocking(move || match store.generation() {
            Ok(generation) if generation != shown => store.catalog().map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        });
        match newer.await {
            Ok(Ok(Some(catalog))) => site.replace(Arc::new(catalog)),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => output::note(&format!("the index cannot be read anew: {error}")),
            Err(error) => output::note(&format!("reading the index anew broke off: {error}")),
        }
    }
}
