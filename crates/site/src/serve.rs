//! Serving over HTTP/1.1 until somebody says stop.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::Site;

/// How long answers that are being sent may take after the stop.
const GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// Answers requests on `listener` until `stop` is ready; what is being answered then is finished, within 5 seconds.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    site: Arc<Site>,
    listener: std::net::TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let service = site.service().into_make_service_with_connect_info::<SocketAddr>();
    let (stopped, mut stopping) = tokio::sync::watch::channel(false);
    let wait = async move {
        stop.await;
        // Nobody listens any more when serving has failed already.
        let _ = stopped.send(true);
    };
    let server = axum::serve(listener, service).with_graceful_shutdown(wait);
    let grace = async {
        if stopping.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = async { server.await } => result,
        () = grace => Ok(()),
    }
}
