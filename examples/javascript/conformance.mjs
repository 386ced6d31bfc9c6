// Runs the conformance vectors: node examples/javascript/conformance.mjs conformance
// Prints every failure and a count; the exit code is 0 only if everything passed.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { compile, MapError } from './streamcal-map.mjs'

function fromHex(text) {
  const [, sign, lead, digits, exponent] = /^(-?)0x([01])\.([0-9a-f]+)p([+-]\d+)$/.exec(text)
  const mantissa = Number.parseInt(lead + digits, 16)
  // In two steps, lest the power alone fall below the smallest float64.
  const value = mantissa * 2 ** (-4 * digits.length) * 2 ** Number(exponent)
  return sign ? -value : value
}

function refusal(item) {
  try {
    compile(item.document)
  } catch (error) {
    if (error instanceof MapError) return null
    throw error
  }
  return `accepted although: ${item.why}`
}

function difference(map, item, tolerance) {
  if (fromHex(item.score_hex) !== item.score) return `score ${item.score} is not ${item.score_hex}`
  if (fromHex(item.served_hex) !== item.served) return `served ${item.served} is not ${item.served_hex}`
  const served = map.apply(item.score, item.segments)
  const fits = Math.abs(served - item.served) <= tolerance * item.served
  const where = item.segments === undefined ? '' : ` in ${JSON.stringify(item.segments)}`
  return fits ? null : `score ${item.score}${where} is served as ${served}, not ${item.served}`
}

const folder = process.argv[2] ?? 'conformance'
let passed = 0
let total = 0
for (const name of readdirSync(folder).filter((file) => file.endsWith('.json')).sort()) {
  const file = JSON.parse(readFileSync(join(folder, name), 'utf8'))
  const map = file.kind === 'apply' ? compile(file.document) : null
  for (const item of file.items) {
    const problem = map === null ? refusal(item) : difference(map, item, file.relative_tolerance)
    total += 1
    if (problem === null) passed += 1
    else console.log(`${name}: ${problem}`)
  }
}
console.log(`${passed} of ${total} passed`)
process.exitCode = passed === total && total > 0 ? 0 : 1
