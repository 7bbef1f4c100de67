package io.admissiongateway.worker;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.WireFormat;
import java.io.IOException;

/**
 * Counts the elements of a ReviewBatch before it is decoded: 8 MiB of empty elements would take a hundred times as
 * much as objects.
 *
 * <p>Source: protos/README.md, section Bounds of a worker.
 */
final class BatchBounds {
    private static final int CANCELLED = 3;

    /** By the numbers of the fields. */
    private static final String[] WHAT = {"", "payloads", "calls", "cancelled ids", "parameters"};

    private static final int[] LIMITS = {0, 4096, 8192, 4096, 256};

    private BatchBounds() {}

    /** Returns which field has too many elements; null if none has. The decoder says what else is wrong. */
    static String excess(byte[] batch) {
        int[] counts = new int[LIMITS.length];
        CodedInputStream input = CodedInputStream.newInstance(batch);
        try {
            for (int tag = input.readTag(); tag != 0; tag = input.readTag()) {
                int number = WireFormat.getTagFieldNumber(tag);
                boolean isPacked =
                        number == CANCELLED && WireFormat.getTagWireType(tag) == WireFormat.WIRETYPE_LENGTH_DELIMITED;
                if (isPacked) {
                    int length = input.readRawVarint32();
                    int start = input.getTotalBytesRead();
                    input.skipRawBytes(length);
                    counts[CANCELLED] += varints(batch, start, start + length);
                } else if (!input.skipField(tag)) {
                    break;
                } else if (number < counts.length) {
                    counts[number]++;
                }
            }
        } catch (IOException malformed) {
            // What came before it is counted.
        }
        for (int number = 1; number < counts.length; number++) {
            if (counts[number] > LIMITS[number]) {
                String found = "a ReviewBatch has " + counts[number] + " " + WHAT[number];
                return found + ", expected at most " + LIMITS[number];
            }
        }
        return null;
    }

    private static int varints(byte[] text, int start, int end) {
        int count = 0;
        for (int at = start; at < end; at++) {
            count += text[at] >= 0 ? 1 : 0;
        }
        return count;
    }
}
