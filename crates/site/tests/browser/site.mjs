// Starts the site on a free port over the repository's records, and a browser that may talk to nothing else.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../../../..");
const binary = process.env.KERNELPROOF_BIN ?? join(root, "target/release/kernelproof");
export const screenshots = process.env.KERNELPROOF_SCREENSHOTS ?? join(root, "target/site-screenshots");

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

export async function start() {
  mkdirSync(screenshots, { recursive: true });
  const folder = mkdtempSync(join(tmpdir(), "kernelproof-site-"));
  const server = spawn(
    binary,
    ["serve", "--listen", "127.0.0.1:0", "--db", join(folder, "index.sqlite"), "--records", join(root, "records")],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const address = await new Promise((found, failed) => {
    let text = "";
    server.once("error", failed);
    server.once("exit", (code) => failed(new Error(`the server ended with ${code}`)));
    server.stdout.on("data", (data) => {
      text += data;
      if (text.includes("\n")) found(text.trim());
    });
  });
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  return {
    address,
    browser,
    async stop() {
      await browser.close();
      const ended = new Promise((done) => server.once("exit", done));
      server.kill("SIGINT");
      const code = await ended;
      rmSync(folder, { recursive: true, force: true });
      return code;
    },
  };
}

// A page that notes every complaint of the browser and every request that leaves the site.
export async function open(site, options = {}) {
  const { width = 1440, scheme = "light", scripts = true } = options;
  const context = await site.browser.newContext({
    viewport: { width, height: 900 },
    colorScheme: scheme,
    javaScriptEnabled: scripts,
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(site.address)) complaints.push(`leaves the site: ${request.url()}`);
  });
  return { page, complaints, close: () => context.close() };
}
