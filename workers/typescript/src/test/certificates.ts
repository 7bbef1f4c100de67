/** Throw-away certificates, made with the openssl program. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** A folder with `ca`, `server` and `client` signed by it, and `stranger`, which signed itself. */
export class Certificates {
  readonly folder = mkdtempSync(join(tmpdir(), "worker-tls-"));

  constructor() {
    this.#selfSigned("ca");
    this.#selfSigned("stranger");
    this.#signed("server");
    this.#signed("client");
  }

  cert(name: string): string {
    return join(this.folder, `${name}.crt`);
  }

  key(name: string): string {
    return join(this.folder, `${name}.key`);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }

  #selfSigned(name: string): void {
    const files = ["-keyout", this.key(name), "-out", this.cert(name)];
    this.#openssl("req", "-x509", ...this.#newKey(name), "-days", "2", ...files);
  }

  #signed(name: string): void {
    const request = join(this.folder, `${name}.csr`);
    const names = join(this.folder, "names");
    writeFileSync(names, "subjectAltName=IP:127.0.0.1,DNS:localhost");
    this.#openssl("req", ...this.#newKey(name), "-keyout", this.key(name), "-out", request);
    const authority = ["-CA", this.cert("ca"), "-CAkey", this.key("ca"), "-CAcreateserial"];
    const made = ["-days", "2", "-extfile", names, "-out", this.cert(name)];
    this.#openssl("x509", "-req", "-in", request, ...authority, ...made);
  }

  #newKey(name: string): string[] {
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", `/CN=${name}`];
  }

  #openssl(...args: string[]): void {
    execFileSync("openssl", args, { stdio: "pipe" });
  }
}
