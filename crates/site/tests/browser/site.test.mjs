// The site as people use it: with a mouse, with keys alone, without scripts, narrow and wide, dark and light.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { open, screenshots, start } from "./site.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let site;

before(async () => { site = await start(); }, { timeout: 60_000 });
after(async () => {
  const code = await site.stop();
  assert.equal(code, 0, "Ctrl-C ends the server in order");
}, { timeout: 30_000 });

// Addresses of one page of each kind, found by following the site's own links.
async function addresses(page) {
  await page.goto(`${site.address}/operations`);
  const first = async (selector) => (await page.locator(selector).first().getAttribute("href")).split("#")[0];
  const operation = await first("main .entries a");
  await page.goto(site.address + operation);
  const [run, implementation, cohort, reported] = [
    await first('.hero .big a[href^="/runs/"]'), await first('main a[href^="/implementations/"]'),
    await first('main a[href^="/cohorts/"]'), await first('main a[href^="/reported/"]'),
  ];
  const { latest } = await (await page.request.get(`${site.address}${operation}.json`)).json();
  const quick = latest.filter((line) => line.reasons.some((reason) => reason.includes("quick")));
  const compare = `/compare/${quick[0].slug}..${quick[1].slug}`;
  const across = `/compare/${latest.find((line) => line.status === "eligible").slug}..${quick[1].slug}`;
  const protocol = await first('main a[href^="/protocols/"]');
  await page.goto(`${site.address}/devices`);
  const device = await first("main .entries a");
  const resolve = `/resolve?operation=${operation.split("/").pop()}&device=cpu&seq_len=1024&batch_size=2`;
  return {
    home: "/", search: "/search?q=rope", operation, run, implementation, cohort, compare, across, reported, device, protocol, resolve,
    methodology: "/methodology", api: "/api", operations: "/operations", devices: "/devices", missing: "/nothing-here",
  };
}

async function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

test("home, search, operation, run, compare with a mouse", async () => {
  const { page, complaints, close } = await open(site);
  await page.goto(site.address);
  await page.fill("#find-big", "rope");
  await page.click(".search-big button");
  assert.match(page.url(), /\/search\?q=rope/);
  await page.click("main .entries a >> nth=0");
  assert.match(page.url(), /\/operations\//);
  await page.click('.hero .big a[href^="/runs/"] >> nth=0');
  assert.match(page.url(), /\/runs\//);
  assert.ok((await page.locator("svg.plot .call").count()) >= 16, "samples of every case are drawn");
  await page.goBack();
  const operation = page.url();
  // PyTorch in two ways on one device: one cohort, so a ratio.
  const runs = page.locator("form", { has: page.locator("#runs") });
  const tick = (device, name) => runs.locator("tr", { hasText: device }).filter({ hasText: name }).first().locator("input").check();
  await tick("AMD EPYC", "pytorch-eager");
  await tick("AMD EPYC", "pytorch-compiled");
  await runs.locator("button").click();
  assert.match(page.url(), /\/compare\/[^/]+\.\.[^/]+$/);
  assert.match(await page.locator("main .big").first().innerText(), /×/);
  // Two devices: two cohorts, so a sentence.
  await page.goto(operation);
  await tick("AMD EPYC", "pytorch-eager");
  await tick("NVIDIA H200", "pytorch-eager");
  await runs.locator("button").click();
  assert.match(await page.locator("main .banner").first().innerText(), /No ratio is given/);
  assert.equal(await page.locator("main .big").count(), 0);
  assert.deepEqual(complaints, []);
  await close();
}, { timeout: 60_000 });

test("the same with keys alone", async () => {
  const { page, complaints, close } = await open(site);
  const focused = (of) => page.evaluate(of);
  await page.goto(site.address);
  await page.keyboard.press("Tab");
  assert.equal(await focused(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await focused(() => document.activeElement.id), "main");
  await page.keyboard.press("/");
  assert.equal(await focused(() => document.activeElement.id), "find");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  assert.equal(await focused(() => document.activeElement.id), "find");
  await page.keyboard.type("rope");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/search/);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/operations\//);
  const ring = () => focused(() => getComputedStyle(document.activeElement).outlineStyle);
  await page.keyboard.press("j");
  assert.notEqual(await ring(), "none", "the focus is seen");
  // On to a run, through the links of the page in their order.
  const reach = async (what, fits) => {
    for (let step = 0; step < 150; step += 1) {
      await page.keyboard.press("Tab");
      if (await focused(fits)) return;
    }
    assert.fail(`${what} is not reached by Tab`);
  };
  await reach("a run", () => document.activeElement.matches('[href^="/runs/"]'));
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/runs\//);
  await page.goBack();
  await page.waitForURL(/\/operations\//);
  await page.focus("main");
  // The page grows with its runs; its list of sections leads past them.
  await reach("the way to the runs", () => document.activeElement.matches('a[href="#runs"]'));
  await page.keyboard.press("Enter");
  for (let ticked = 0; ticked < 2; ticked += 1) {
    await reach("a run to compare", () => document.activeElement.matches("#runs ~ .scroll input:not(:checked)"));
    await page.keyboard.press("Space");
  }
  await reach("the button", () => document.activeElement.matches("#runs ~ button"));
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/compare\//);
  assert.deepEqual(complaints, []);
  await close();
}, { timeout: 60_000 });

test("without scripts everything is there", async () => {
  const { page, close } = await open(site, { scripts: false });
  await page.goto(site.address);
  await page.fill("#find", "avx512");
  await page.press("#find", "Enter");
  await page.waitForURL(/\/search/);
  assert.ok((await page.locator("main .entries li").count()) > 0);
  await page.goto(`${site.address}/operations`);
  await page.click("main .entries a >> nth=0");
  await page.click("text=Find the fastest");
  await page.waitForURL(/\/resolve/);
  assert.match(await page.locator("h1").innerText(), /Which implementation/);
  await close();
}, { timeout: 60_000 });

test("the theme is switched and kept", async () => {
  const { page, complaints, close } = await open(site);
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.goto(site.address);
  const light = await paper();
  await page.click("#theme");
  const dark = await paper();
  assert.notEqual(light, dark);
  await page.goto(`${site.address}/methodology`);
  assert.equal(await paper(), dark);
  assert.deepEqual(complaints, []);
  await close();
}, { timeout: 60_000 });

for (const width of [390, 1440]) {
  for (const scheme of ["light", "dark"]) {
    test(`${width} pixels, ${scheme}: nothing sticks out, nothing is inaccessible`, async () => {
      const { page, complaints, close } = await open(site, { width, scheme });
      for (const [name, address] of Object.entries(await addresses(page))) {
        await page.goto(site.address + address);
        assert.ok((await overflow(page)) <= 0, `${name} is wider than the window`);
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
        const bad = violations.filter((found) => ["serious", "critical"].includes(found.impact));
        const told = bad.map((found) => `${name}: ${found.id}: ${found.nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
        assert.deepEqual(told, []);
        await page.screenshot({ path: join(screenshots, `${name}-${width}-${scheme}.png`), fullPage: true });
      }
      // A page that is not there is an error to the browser's console, and to nobody else.
      assert.deepEqual(complaints.filter((complaint) => !complaint.includes("nothing-here")), []);
      await close();
    }, { timeout: 180_000 });
  }
}
