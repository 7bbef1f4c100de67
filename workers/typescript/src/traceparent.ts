/** W3C Trace Context. */

/** Length of a traceparent of version 00. */
const LENGTH = 55;

const FORM = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/**
 * Returns `text` if it is a traceparent, otherwise the empty string.
 *
 * Source: https://www.w3.org/TR/trace-context/#traceparent-header-field-values.
 */
export function validTraceparent(text: unknown): string {
  return typeof text === "string" && text.length === LENGTH && FORM.test(text) ? text : "";
}
