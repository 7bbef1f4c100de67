package io.admissiongateway.worker;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * Thrown by a policy to deny the request: {@code throw new Denied("spec.hostPID: remove it")}.
 *
 * <p>An answer rather than an error, hence the name, and no stack trace. The message is shown to the user who made
 * the request: the field, what is wrong with it, and what to do.
 */
public final class Denied extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private int code = 403;
    private String reason = "";
    private int retryAfterSeconds;
    private String name = "";
    private String group = "";
    private String kind = "";
    private String uid = "";
    private final transient List<Cause> causes = new ArrayList<>();

    /** Denies with code 403, no reason and no causes. */
    public Denied(String message) {
        super(Objects.requireNonNull(message, "a denial says what to change"), null, false, false);
    }

    /** Sets the HTTP status, 400 to 599; any other value is sent as 400. */
    public Denied code(int code) {
        this.code = code;
        return this;
    }

    /** Sets the machine-readable reason, such as {@code Forbidden}; empty: chosen by the gateway. */
    public Denied reason(String reason) {
        this.reason = Objects.requireNonNull(reason);
        return this;
    }

    /** Names the offending field: short for one {@link Cause} of that field with the message of the denial. */
    public Denied field(String field) {
        return cause(new Cause(getMessage(), field));
    }

    /** Adds a cause; they are shown in the order in which they were added. */
    public Denied cause(Cause cause) {
        causes.add(Objects.requireNonNull(cause));
        return this;
    }

    /** Adds causes; they are shown in this order. */
    public Denied causes(Iterable<Cause> causes) {
        causes.forEach(this::cause);
        return this;
    }

    /**
     * Sets after how many seconds the client may try again, which it reads in the header {@code Retry-After}; anything
     * below 1 is left out.
     */
    public Denied retryAfterSeconds(int seconds) {
        this.retryAfterSeconds = seconds;
        return this;
    }

    /** Sets the name of the denial's object. */
    public Denied name(String name) {
        this.name = Objects.requireNonNull(name);
        return this;
    }

    /** Sets the API group of the denial's object. */
    public Denied group(String group) {
        this.group = Objects.requireNonNull(group);
        return this;
    }

    /**
     * Sets the kind of the denial's object. With the reason {@code Invalid} kubectl prints {@code The
     * KIND "NAME" is invalid} instead of the message.
     */
    public Denied kind(String kind) {
        this.kind = Objects.requireNonNull(kind);
        return this;
    }

    /** Sets the uid of the denial's object. */
    public Denied uid(String uid) {
        this.uid = Objects.requireNonNull(uid);
        return this;
    }

    /** The HTTP status, as it was set. */
    public int code() {
        return code;
    }

    /** The machine-readable reason; empty by default. */
    public String reason() {
        return reason;
    }

    /** After how many seconds the client may try again, as it was set; 0 where it was not. */
    public int retryAfterSeconds() {
        return retryAfterSeconds;
    }

    /** The name of the denial's object; empty by default. */
    public String name() {
        return name;
    }

    /** The API group of that object; empty by default. */
    public String group() {
        return group;
    }

    /** The kind of that object; empty by default. */
    public String kind() {
        return kind;
    }

    /** The uid of that object; empty by default. */
    public String uid() {
        return uid;
    }

    /** What is wrong, field by field. */
    public List<Cause> causes() {
        return List.copyOf(causes);
    }
}
